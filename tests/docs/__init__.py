"""Tests of the documentation: generated pages, commands, examples and links."""
