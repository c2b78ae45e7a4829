"""Measurement of a machine, and facts to diagnose problems with it."""
