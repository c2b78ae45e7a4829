"""Other libraries that a plan may ask for; each is imported only where it does."""
