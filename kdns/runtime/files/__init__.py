"""Files of users: read within a bound, parsed as YAML, and read again when they change."""
