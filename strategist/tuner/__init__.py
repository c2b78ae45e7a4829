"""The loop: propose, execute, record, learn."""
