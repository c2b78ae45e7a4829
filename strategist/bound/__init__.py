"""Lower bounds of a step's time, independent of the software."""
