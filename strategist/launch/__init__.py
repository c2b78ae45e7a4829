"""Launching of an exported plan on a cluster: job files for schedulers, around the command of a format."""
