"""tsig: messages signed with a shared secret (RFC 8945)."""
