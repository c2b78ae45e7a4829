"""Tests of report pages, from constructed values."""
