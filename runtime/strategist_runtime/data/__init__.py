"""Tokens, from where they lie to the batch of a rank."""
