"""Tests of strategist.expr."""
