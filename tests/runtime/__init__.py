"""Tests of the executing half with real processes."""
