"""Tests of strategist.contract."""
