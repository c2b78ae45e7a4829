"""Tests of alternatives."""
