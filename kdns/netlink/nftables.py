"""Objects of nftables as the kernel lists them: names, rules by chain, and the counters of map elements."""

from __future__ import annotations

from typing import Final, NamedTuple

from kdns.net import unpacked
from kdns.netlink import uapi
from kdns.netlink.protocol import NFGENMSG, PROTOCOL_NAMES, attribute_spans, attributes, big_endian, text_of

_PORT_BYTES: Final = 8
"""The size of protocol and port at the end of a key: every part of a key is padded to four bytes."""


class CounterElement(NamedTuple):
    """The element of one front in a map: its address ("" for a node port), protocol and port, and its counter."""

    address: str
    protocol: str
    port: int
    packets: int


def chain_of_rule(body: bytes) -> str:
    return text_of(attributes(body, NFGENMSG.size)[uapi.NFTA_RULE_CHAIN])


def set_or_map(body: bytes) -> tuple[str, str, str] | None:
    """Table, "set" or "map", and name; None for an anonymous set."""
    row = attributes(body, NFGENMSG.size)
    flags = big_endian(row.get(uapi.NFTA_SET_FLAGS, b""))
    if flags & uapi.NFT_SET_ANONYMOUS:
        return None
    sort = "map" if flags & uapi.NFT_SET_MAP else "set"
    return text_of(row[uapi.NFTA_SET_TABLE]), sort, text_of(row[uapi.NFTA_SET_NAME])


def counter_elements(body: bytes) -> list[CounterElement]:
    spans = attribute_spans(body, NFGENMSG.size, len(body))
    _, start, end = next(span for span in spans if span[0] == uapi.NFTA_SET_ELEM_LIST_ELEMENTS)
    elements = (attributes(body[at:to]) for _, at, to in attribute_spans(body, start, end))
    return [
        _counter_element(attributes(element[uapi.NFTA_SET_ELEM_KEY])[uapi.NFTA_DATA_VALUE], element)
        for element in elements
    ]


def _counter_element(key: bytes, element: dict[int, bytes]) -> CounterElement:
    """A key is [address .] protocol . port."""
    packed, protocol = key[:-_PORT_BYTES], key[-_PORT_BYTES]
    address = unpacked(packed) if packed else ""
    port = big_endian(key[-_PORT_BYTES + 4 : -_PORT_BYTES + 6])
    return CounterElement(address, PROTOCOL_NAMES.get(protocol, str(protocol)), port, _packets(element))


def _packets(element: dict[int, bytes]) -> int:
    """0 without a counter."""
    expression = element.get(uapi.NFTA_SET_ELEM_EXPR)
    if expression is None:
        expression = attributes(element.get(uapi.NFTA_SET_ELEM_EXPRESSIONS, b"")).get(uapi.NFTA_LIST_ELEM, b"")
    row = attributes(attributes(expression).get(uapi.NFTA_EXPR_DATA, b""))
    return big_endian(row.get(uapi.NFTA_COUNTER_PACKETS, b""))
