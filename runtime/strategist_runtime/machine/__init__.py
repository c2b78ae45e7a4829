"""What this machine reaches, and what is wrong with it."""
