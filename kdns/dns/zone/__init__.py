"""Zones as values: their names and records, what they answer, and what of them changes."""
