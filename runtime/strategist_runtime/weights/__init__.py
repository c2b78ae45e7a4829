"""Where weights come from and where they go."""
