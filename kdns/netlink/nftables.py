"""Objects of nftables as the kernel lists them: names, rules by chain, and the counters of map elements."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from kdns.net import unpacked
from kdns.netlink.protocol import NFGENMSG, PROTOCOL_NAMES, attribute_spans, attributes, text_of
from kdns.netlink.uapi import (
    NFT_SET_ANONYMOUS,
    NFT_SET_MAP,
    NFTA_COUNTER_BYTES,
    NFTA_COUNTER_PACKETS,
    NFTA_DATA_VALUE,
    NFTA_EXPR_DATA,
    NFTA_LIST_ELEM,
    NFTA_SET_ELEM_EXPR,
    NFTA_SET_ELEM_EXPRESSIONS,
    NFTA_SET_ELEM_KEY,
    NFTA_SET_ELEM_LIST_ELEMENTS,
    NFTA_SET_FLAGS,
    NFTA_SET_NAME,
)

_LENGTH: Final = struct.Struct("=H")
_PORT_BYTES: Final = 8
"""The size of protocol and port at the end of a key: every part of a key is padded to four bytes."""


class CounterElement(NamedTuple):
    """The element of one front in a map: its address ("" for a node port), protocol and port, and its counter."""

    address: str
    protocol: str
    port: int
    packets: int
    octets: int


def chain_of_rule(body: bytes) -> str:
    """Decodes the chain of a rule. The name of the table is the first attribute, the chain's the second."""
    (length,) = _LENGTH.unpack_from(body, NFGENMSG.size)
    at = NFGENMSG.size + (length + 3 & ~3)
    (length,) = _LENGTH.unpack_from(body, at)
    return body[at + 4 : at + length - 1].decode(errors="replace")


def set_or_map(row: dict[int, bytes]) -> tuple[str, str] | None:
    """Returns "set" or "map", and the name; None for an anonymous set."""
    flags = _integer(row.get(NFTA_SET_FLAGS, b""))
    if flags & NFT_SET_ANONYMOUS:
        return None
    return "map" if flags & NFT_SET_MAP else "set", text_of(row[NFTA_SET_NAME])


def counter_elements(body: bytes) -> Iterator[CounterElement]:
    """Decodes the elements in one message of a map's list."""
    lists = (span for span in attribute_spans(body, NFGENMSG.size, len(body)) if span[0] == NFTA_SET_ELEM_LIST_ELEMENTS)
    _, start, end = next(lists)
    for _, at, to in attribute_spans(body, start, end):
        element = attributes(body[at:to])
        yield _counter_element(attributes(element[NFTA_SET_ELEM_KEY])[NFTA_DATA_VALUE], element)


def _counter_element(key: bytes, element: dict[int, bytes]) -> CounterElement:
    """Returns the element of a key: [address .] protocol . port."""
    packed, protocol = key[:-_PORT_BYTES], key[-_PORT_BYTES]
    address = unpacked(packed) if packed else ""
    port = int.from_bytes(key[-_PORT_BYTES + 4 : -_PORT_BYTES + 6], "big")
    return CounterElement(address, PROTOCOL_NAMES.get(protocol, str(protocol)), port, *_counter(element))


def _counter(element: dict[int, bytes]) -> tuple[int, int]:
    """Returns packets and bytes; zeros for an element without a counter."""
    expression = element.get(NFTA_SET_ELEM_EXPR)
    if expression is None:
        expression = attributes(element.get(NFTA_SET_ELEM_EXPRESSIONS, b"")).get(NFTA_LIST_ELEM, b"")
    row = attributes(attributes(expression).get(NFTA_EXPR_DATA, b""))
    return _integer(row.get(NFTA_COUNTER_PACKETS, b"")), _integer(row.get(NFTA_COUNTER_BYTES, b""))


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "big")
