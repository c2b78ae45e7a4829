"""The command line: one file per command group; render.py is the only place that prints."""
