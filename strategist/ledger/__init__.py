"""What was tried: trials, attempts, leases and outcomes, in an SQLite file or on a PostgreSQL server, safe from any kill."""
