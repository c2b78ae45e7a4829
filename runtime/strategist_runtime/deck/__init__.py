"""Checks of cards against the installed torch."""
