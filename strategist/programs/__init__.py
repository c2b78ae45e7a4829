"""Programs: external trainers, their start commands and settings, and how their figures are read."""
