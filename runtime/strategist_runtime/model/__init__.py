"""The native decoder that a trial trains: layers, attention, experts, loss, LoRA and NF4."""
