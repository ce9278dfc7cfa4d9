"""forward: queries that other servers answer."""
