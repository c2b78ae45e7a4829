"""Is a deck sound? One check is one function with a code."""
