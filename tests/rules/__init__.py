"""Tests of strategist.rules."""
