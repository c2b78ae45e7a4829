"""Measures the machine and diagnoses problems with it."""
