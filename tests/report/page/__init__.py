"""Reports from values made by hand."""
