"""Strategy cards: engineering knowledge as data."""
