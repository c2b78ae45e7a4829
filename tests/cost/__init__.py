"""Tests of strategist.cost."""
