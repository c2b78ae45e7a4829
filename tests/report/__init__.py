"""Tests of reports, from constructed values."""
