"""What was tried: trials, attempts, leases and outcomes, in one SQLite file that survives any kill."""
