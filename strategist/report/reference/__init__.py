"""The reference: pages of Markdown that say what the code says, and nothing else."""
