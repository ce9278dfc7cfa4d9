"""PROXY protocol headers, by which an endpoint learns its client's address (HAProxy, "The PROXY protocol").

Source and destination are those of the client's connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import pack
from typing import Final

from kdns.net import Address

_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_VERSION_2_PROXY: Final = 0x21
_TCP: Final[Mapping[int, tuple[str, int]]] = {4: ("TCP4", 0x11), 6: ("TCP6", 0x21)}
"""IP version → family and transport in header versions 1 and 2."""


def version_1(source: Address, source_port: int, destination: Address, destination_port: int) -> bytes:
    """Returns the header as a line of text (section 2.1)."""
    family, _ = _TCP[source.version]
    return f"PROXY {family} {source} {destination} {source_port} {destination_port}\r\n".encode()


def version_2(source: Address, source_port: int, destination: Address, destination_port: int) -> bytes:
    """Returns the header in its binary form (section 2.2), without further values."""
    _, family = _TCP[source.version]
    addresses = source.packed + destination.packed + pack("!HH", source_port, destination_port)
    return _SIGNATURE + pack("!BBH", _VERSION_2_PROXY, family, len(addresses)) + addresses


HEADERS: Final[Mapping[str, Callable[[Address, int, Address, int], bytes]]] = {"v1": version_1, "v2": version_2}
"""Header version, as the annotation of a Service names it, → the function that makes the header."""
