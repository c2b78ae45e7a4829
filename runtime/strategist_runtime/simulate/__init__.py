"""One rank of any cluster without the cluster: the same trainer on tensors without values, in a process group without peers."""
