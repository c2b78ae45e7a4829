"""Differences between devices and between versions of torch; the only user of torch's private names."""
