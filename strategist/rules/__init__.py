"""Cards applied to candidates: forbid, prefer, explain, and propose after a trial."""
