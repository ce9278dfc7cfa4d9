"""Queries as packets, of tools and tests."""

from __future__ import annotations

from kdns.dns.names import labels_of
from kdns.dns.query import RD, Edns, query_for


def query(name: str, rtype: int, *, message_id: int = 1, payload_bytes: int = 0, rd: bool = True) -> bytes:
    """With an OPT that offers `payload_bytes` unless that is 0; ValueError if the name is not a domain name."""
    edns = Edns(payload_bytes, do=False, version=0) if payload_bytes else None
    packet = query_for(labels_of(name), rtype, flags=RD if rd else 0).changed(edns=edns).packet
    return message_id.to_bytes(2) + packet[2:]
