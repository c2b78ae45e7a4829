"""Tests of strategist.lint."""
