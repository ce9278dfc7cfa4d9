"""The objects that a command works on: from manifests, or listed once from an API server."""
