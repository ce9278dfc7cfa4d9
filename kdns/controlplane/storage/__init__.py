"""Objects, revisions, history, watches and lists, in memory."""
