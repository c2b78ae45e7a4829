"""Tests of strategist.profiles."""
