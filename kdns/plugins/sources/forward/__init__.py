"""forward: queries that are answered by other servers."""
