"""Mode userspace without sockets: relays, their clients, balancing and PROXY headers."""
