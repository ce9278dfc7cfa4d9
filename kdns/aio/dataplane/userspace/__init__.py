"""Mode userspace: relays over TCP and UDP."""
