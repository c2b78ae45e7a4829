"""Strategy cards: what engineers know, as data."""
