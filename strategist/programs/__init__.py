"""Programs: external trainers, how they are started, their settings, and how their figures are read."""
