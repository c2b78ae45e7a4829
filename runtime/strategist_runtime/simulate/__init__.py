"""Simulation of one rank of any cluster: the same trainer on tensors without values, in a process group without peers."""
