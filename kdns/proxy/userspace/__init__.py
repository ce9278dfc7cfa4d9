"""Mode userspace without sockets: relays, their clients and balancing."""
