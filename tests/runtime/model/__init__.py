"""Tests of the runtime's package of the same name."""
