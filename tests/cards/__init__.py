"""Tests of strategist.cards."""
