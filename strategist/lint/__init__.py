"""Linter of decks. One check is one function with a code."""
