"""Cost model: memory and time of candidates, as pure arithmetic on columns."""
