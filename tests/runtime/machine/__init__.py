"""Tests of the runtime's room of the same name."""
