"""Tests of the ways."""
