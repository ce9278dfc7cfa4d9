"""DNS over HTTPS as values: requests, responses, and the codecs of HTTP/1.1 and HTTP/2 (RFC 8484)."""
