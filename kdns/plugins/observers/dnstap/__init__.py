"""dnstap: copies of messages for collectors, as protobuf in frames."""
