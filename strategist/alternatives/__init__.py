"""Alternatives: changes of a request that would make it fit or run faster; the planner computes the gain of each."""
