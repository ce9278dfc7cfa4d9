"""Mode userspace at work: relays over TCP and UDP."""
