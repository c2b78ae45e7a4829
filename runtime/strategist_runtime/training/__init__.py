"""Training: trainer, session, checkpoints and curves."""
