"""Which candidates there are, in what order, and which to try next."""
