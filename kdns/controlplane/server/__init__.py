"""The API server without HTTP: verbs, writes, deletion, discovery and representations."""
