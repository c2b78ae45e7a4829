"""Values shared by the deciding and the executing half. Standard library only."""
