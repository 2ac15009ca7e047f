"""Metrics for persona dialogue."""
