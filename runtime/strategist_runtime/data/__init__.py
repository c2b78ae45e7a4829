"""Data loading: token ids from files to the batch of a rank."""
