"""The executing half on real processes."""
