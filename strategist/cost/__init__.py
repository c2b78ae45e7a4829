"""What candidates need and reach: pure arithmetic on columns."""
