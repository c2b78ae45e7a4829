"""Rendering: values of the contract as tables and text. Prints nothing."""
