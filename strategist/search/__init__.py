"""Search: the space of candidates, their ranking, and the choice of the next trial."""
