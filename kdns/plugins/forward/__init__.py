"""forward: questions that are answered by other servers."""
