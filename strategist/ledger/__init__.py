"""Ledger of a study: trials, attempts, leases and outcomes, in an SQLite file or on a PostgreSQL server; crash-safe."""
