"""The executing half: runs a plan on torch.distributed, one process per rank, and writes down what each rank saw."""
