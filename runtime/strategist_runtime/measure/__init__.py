"""What a step took, by part, axis and collective; and how much lived at its fullest moment."""
