"""Elements of sets and maps as messages of netlink, for as many as the program nft would take 3 KiB of memory each."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import ip_network
from typing import Final, TypeAlias

from kdns.errors import ApplyError
from kdns.net import Family, packed
from kdns.netlink.protocol import ADDRESS_FAMILY, NFGENMSG, PROTOCOL_NUMBERS, attribute
from kdns.netlink.uapi import (
    NFNL_SUBSYS_NFTABLES,
    NFT_GOTO,
    NFT_MSG_DELSETELEM,
    NFT_MSG_NEWSETELEM,
    NFTA_DATA_VALUE,
    NFTA_DATA_VERDICT,
    NFTA_LIST_ELEM,
    NFTA_SET_ELEM_DATA,
    NFTA_SET_ELEM_KEY,
    NFTA_SET_ELEM_KEY_END,
    NFTA_SET_ELEM_LIST_ELEMENTS,
    NFTA_SET_ELEM_LIST_SET,
    NFTA_SET_ELEM_LIST_TABLE,
    NFTA_SET_ELEM_USERDATA,
    NFTA_VERDICT_CHAIN,
    NFTA_VERDICT_CODE,
)
from kdns.proxy.nftables.objects import TABLE, AddressPort, Data, ElementKey, Goto, Number, Set, comment_text
from kdns.proxy.nftables.transaction import Transaction

Request: TypeAlias = tuple[int, bytes]
"""The type and the payload of a message."""

_KIND: Final = NFNL_SUBSYS_NFTABLES << 8
_MESSAGE_BYTES: Final = 32 * 1024
"""A list of elements is one attribute, which has at most 64 KiB."""
_PROTOCOLS: Final = {name.lower(): number for name, number in PROTOCOL_NUMBERS.items()}
_ADDRESS_BYTES: Final = {"IPv4": 4, "IPv6": 16}
_CODE: Final = struct.Struct(">i")
_PORT: Final = struct.Struct(">H")


def flushed(family: Family, sets: Iterable[Set]) -> Iterator[Request]:
    """Deletes all elements of these sets."""
    return ((_KIND | NFT_MSG_DELSETELEM, _of(family, each)) for each in sets)


def element_requests(change: Transaction, sets: Mapping[str, Set]) -> Iterator[Request]:
    """Deletes and adds the elements of a transaction; ApplyError for a value that its type does not have.

    An API that does not validate may send any port or address. The Service is found as one that the kernel rejects.
    """
    for name, keys in change.delete.items():
        yield from _listed(NFT_MSG_DELSETELEM, change.family, sets[name], ((key, None) for key in keys))
    for name, elements in change.add.items():
        yield from _listed(NFT_MSG_NEWSETELEM, change.family, sets[name], elements.items())


def _listed(kind: int, family: Family, into: Set, elements: Iterable[tuple[ElementKey, Data]]) -> Iterator[Request]:
    head, size = _of(family, into), 0
    part: list[bytes] = []
    for key, data in elements:
        try:
            part.append(attribute(NFTA_LIST_ELEM, _element(family, into, key, data), nested=True))
        except (OSError, ValueError, OverflowError, KeyError, struct.error) as error:
            raise ApplyError(("netlink",), f"{into.name} cannot have the element {key}: {error}") from error
        size += len(part[-1])
        if size > _MESSAGE_BYTES:
            yield _KIND | kind, head + _elements(part)
            part, size = [], 0
    if part:
        yield _KIND | kind, head + _elements(part)


def _of(family: Family, one: Set) -> bytes:
    names = ((NFTA_SET_ELEM_LIST_TABLE, TABLE), (NFTA_SET_ELEM_LIST_SET, one.name))
    return NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0) + b"".join(
        attribute(kind, name.encode() + b"\0") for kind, name in names
    )


def _elements(part: list[bytes]) -> bytes:
    return attribute(NFTA_SET_ELEM_LIST_ELEMENTS, b"".join(part), nested=True)


def _element(family: Family, into: Set, key: ElementKey, data: Data) -> bytes:
    types = [each.datatype for each in into.key]
    first = last = key
    if into.has_intervals:
        network = ip_network(str(key[-1]))
        first, last = (*key[:-1], str(network[0])), (*key[:-1], str(network[-1]))
    made = attribute(NFTA_SET_ELEM_KEY, _value(family, types, first), nested=True)
    if into.has_intervals:
        made += attribute(NFTA_SET_ELEM_KEY_END, _value(family, types, last), nested=True)
    match data:
        case None:
            return made
        case Goto(name):
            return made + _goto(name)
        case Number(number, comment):
            value = attribute(NFTA_DATA_VALUE, number.to_bytes(4, sys.byteorder))
            return made + attribute(NFTA_SET_ELEM_DATA, value, nested=True) + _comment(comment)
        case AddressPort():
            values: tuple[str | int, ...] = data
        case _:
            values = (data,)
    kinds = [each.datatype for each in into.data]
    return made + attribute(NFTA_SET_ELEM_DATA, _value(family, kinds, values), nested=True)


def _goto(name: str) -> bytes:
    chain_name = attribute(NFTA_VERDICT_CHAIN, name.encode() + b"\0")
    verdict = attribute(NFTA_VERDICT_CODE, _CODE.pack(NFT_GOTO)) + chain_name
    return attribute(NFTA_SET_ELEM_DATA, attribute(NFTA_DATA_VERDICT, verdict, nested=True), nested=True)


def _comment(text: str) -> bytes:
    """Returns a comment as libnftnl keeps it: type 0, length, and text with a terminating zero."""
    packed = comment_text(text).encode() + b"\0"
    return attribute(NFTA_SET_ELEM_USERDATA, bytes((0, len(packed))) + packed)


def _value(family: Family, types: list[str], values: tuple[str | int, ...]) -> bytes:
    """Returns a value; the parts of one with several are padded to four bytes each."""
    packed = [_packed(family, kind, value) for kind, value in zip(types, values, strict=True)]
    if len(packed) > 1:
        packed = [each + bytes(-len(each) % 4) for each in packed]
    return attribute(NFTA_DATA_VALUE, b"".join(packed))


def _packed(family: Family, kind: str, value: str | int) -> bytes:
    match kind:
        case "address":
            return _address(family, str(value))
        case "inet_proto":
            return bytes((_PROTOCOLS[str(value)],))
        case "inet_service":
            return _PORT.pack(int(value))
        case _:
            return int(value).to_bytes(4, sys.byteorder)


@lru_cache(1 << 16)
def _address(family: Family, text: str) -> bytes:
    address = packed(text)
    if len(address) != _ADDRESS_BYTES[family]:
        raise ValueError(f"expected an address of {family}, got {text!r}")
    return address
