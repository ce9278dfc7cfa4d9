"""Zones as values: their names and records, their answers, and the differences between versions."""
