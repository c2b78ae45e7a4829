"""Lower bounds of a step's time that no implementation can beat."""
