"""DNS over TLS, HTTPS and QUIC: imported only if a server block has their schemes."""
