"""Checks, in files by subject; ``all`` lists all of them."""
