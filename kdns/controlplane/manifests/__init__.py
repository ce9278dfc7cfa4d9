"""Manifests as values: reading a document, applying order, and the three-way merge with the stored object."""
