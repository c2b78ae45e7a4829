"""The executing half: runs a plan on torch.distributed, one process per rank, and records what each rank measured."""
