"""What the tests of cards ask of torch."""
