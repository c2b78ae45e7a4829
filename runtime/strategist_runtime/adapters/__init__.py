"""Optional libraries that a plan may need; each is imported only if it does."""
