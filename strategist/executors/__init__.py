"""Executors: run a plan as a trial; start, monitor, end and judge its processes."""
