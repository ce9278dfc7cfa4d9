"""tsig: messages that are signed with a shared secret (RFC 8945)."""
