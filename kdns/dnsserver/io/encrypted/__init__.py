"""DNS over TLS, HTTPS and QUIC: imported where a server block has their schemes."""
