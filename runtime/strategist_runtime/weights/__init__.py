"""Model weights: seeded, loaded and exported."""
