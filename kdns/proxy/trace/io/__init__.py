"""Real connections on this machine."""
