"""Files: YAML, Corefiles, manifests, configurations, the SQLite store."""
