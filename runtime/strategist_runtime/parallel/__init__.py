"""What ranks share among them: data, tensors, layers, sequences, experts."""
