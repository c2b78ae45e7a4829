"""Cards applied: what they drop, prefer, explain, and propose after a trial."""
