"""Lower bounds: how long a step takes at least, whatever the software does."""
