"""What turns gradients into new parameters."""
