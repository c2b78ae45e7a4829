"""Optimizers, gradient norms and clipping."""
