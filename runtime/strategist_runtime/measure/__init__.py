"""Measurements of a step: time by part, mesh axis and collective; peak memory."""
