"""Requests as application/vnd.kubernetes.protobuf: the wire format, and the messages of the schema's types."""
