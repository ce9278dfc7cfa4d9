"""dnstap's frames on a connection (Frame Streams, fstrm's protocol)."""
