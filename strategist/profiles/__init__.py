"""Profiles: models, hardware, back ends and past measurements, and their names in a request."""
