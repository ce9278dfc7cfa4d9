"""dnstap: sends copies of messages to collectors, as protobuf in frames."""
