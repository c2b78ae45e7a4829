"""Tests of the cost model's accuracy on published measurements."""
