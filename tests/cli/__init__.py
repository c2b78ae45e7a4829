"""The real command."""
