"""The tuning loop: propose, execute, record, learn."""
