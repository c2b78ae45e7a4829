"""Other systems' config files: read as plans, and written from plans."""
