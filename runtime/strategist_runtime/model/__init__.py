"""The decoder that a trial trains, and weights that do not depend on how it is laid out."""
