"""Parallelism: data, tensor, pipeline, context and expert."""
