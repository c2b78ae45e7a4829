"""What the deciding and the executing half say to each other. Standard library only."""
