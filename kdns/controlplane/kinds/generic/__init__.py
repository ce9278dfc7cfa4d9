"""Kinds that are stored and printed, and that nothing in kdns acts on."""
