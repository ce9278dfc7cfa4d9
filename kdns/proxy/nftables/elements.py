"""Elements of sets and maps as messages of netlink, for as many as the program nft would take 3 KiB of memory each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from ipaddress import ip_network
from operator import call
from typing import Any, Final, TypeAlias

from kdns.net import Family, packed
from kdns.netlink import uapi
from kdns.netlink.protocol import PROTOCOL_NUMBERS, attribute, netfilter_header
from kdns.proxy.nftables.objects import (
    TABLE,
    VERDICT,
    AddressPort,
    Data,
    ElementKey,
    Goto,
    Number,
    Parts,
    Set,
    Transaction,
    comment_text,
)

Request: TypeAlias = tuple[int, bytes]
"""The type and the payload of a message."""

_KIND: Final = uapi.NFNL_SUBSYS_NFTABLES << 8
_MESSAGE_BYTES: Final = 32 * 1024
"""A list of elements is one attribute, which has at most 64 KiB."""
_PROTOCOLS: Final = {name.lower(): bytes((number,)) for name, number in PROTOCOL_NUMBERS.items()}
_ADDRESS_BYTES: Final = {"IPv4": 4, "IPv6": 16}
_Encoder: TypeAlias = Callable[[Any], bytes]
_TYPES: Final[Mapping[str, tuple[int, _Encoder]]] = {
    "inet_proto": (1, _PROTOCOLS.__getitem__),
    "inet_service": (2, struct.Struct(">H").pack),
}
"""The size in bytes, and what encodes a value, by datatype."""
_NUMBER: Final[tuple[int, _Encoder]] = 4, struct.Struct("=I").pack
"""All other types are numbers in this machine's order."""
_CODE: Final = struct.Struct(">i")
_ATTRIBUTE: Final = struct.Struct("=HH")
"""Length and type (struct nlattr)."""


def flushed(family: Family, sets: Iterable[Set]) -> Iterator[Request]:
    return ((_KIND | uapi.NFT_MSG_DELSETELEM, _of(family, emptied)) for emptied in sets)


def element_requests(change: Transaction, sets: Mapping[str, Set]) -> Iterator[Request]:
    """Deletes and adds the elements of a transaction."""
    for name, keys in change.delete.items():
        yield from _listed(uapi.NFT_MSG_DELSETELEM, change.family, sets[name], ((key, None) for key in keys))
    for name, elements in change.add.items():
        yield from _listed(uapi.NFT_MSG_NEWSETELEM, change.family, sets[name], elements.items())


def _listed(kind: int, family: Family, into: Set, elements: Iterable[tuple[ElementKey, Data]]) -> Iterator[Request]:
    head, size = _of(family, into), 0
    encode = _encoder(family, into)
    part: list[bytes] = []
    for key, data in elements:
        body = encode(key, data)
        part.append(body)
        size += len(body)
        if size > _MESSAGE_BYTES:
            yield _KIND | kind, head + _elements(part)
            part, size = [], 0
    if part:
        yield _KIND | kind, head + _elements(part)


def _of(family: Family, one: Set) -> bytes:
    names = ((uapi.NFTA_SET_ELEM_LIST_TABLE, TABLE), (uapi.NFTA_SET_ELEM_LIST_SET, one.name))
    return netfilter_header(family) + b"".join(attribute(kind, name.encode() + b"\0") for kind, name in names)


def _elements(part: list[bytes]) -> bytes:
    return attribute(uapi.NFTA_SET_ELEM_LIST_ELEMENTS, b"".join(part), nested=True)


@lru_cache(256)
def _encoder(family: Family, into: Set) -> Callable[[ElementKey, Data], bytes]:
    if into.has_intervals:
        encoded = _packer(family, (uapi.NFTA_SET_ELEM_KEY, into.key), (uapi.NFTA_SET_ELEM_KEY_END, into.key))
        return lambda key, _: encoded(_interval(key))
    encoded_key = _packer(family, (uapi.NFTA_SET_ELEM_KEY, into.key))
    if not into.data:
        return lambda key, _: encoded_key(key)
    if VERDICT in into.data:
        return lambda key, data: encoded_key(key, _goto(data.chain)) if isinstance(data, Goto) else encoded_key(key)
    encoded_pair = _packer(family, (uapi.NFTA_SET_ELEM_KEY, into.key), (uapi.NFTA_SET_ELEM_DATA, into.data))

    def encode(key: ElementKey, data: Data) -> bytes:
        if isinstance(data, AddressPort):
            return encoded_pair(key + data)
        if isinstance(data, Number):
            return encoded_pair((*key, data.number), _comment(data.comment))
        return encoded_key(key) if data is None else encoded_pair((*key, data))

    return encode


def _interval(key: ElementKey) -> ElementKey:
    network = ip_network(str(key[-1]))
    return (*key[:-1], str(network[0]), *key[:-1], str(network[-1]))


@lru_cache
def _goto(name: str) -> bytes:
    chain_name = attribute(uapi.NFTA_VERDICT_CHAIN, name.encode() + b"\0")
    verdict = attribute(uapi.NFTA_VERDICT_CODE, _CODE.pack(uapi.NFT_GOTO)) + chain_name
    return attribute(uapi.NFTA_SET_ELEM_DATA, attribute(uapi.NFTA_DATA_VERDICT, verdict, nested=True), nested=True)


@lru_cache
def _comment(text: str) -> bytes:
    """As libnftnl keeps it: type 0, length, and text with a terminating zero."""
    packed = comment_text(text).encode() + b"\0"
    return attribute(uapi.NFTA_SET_ELEM_USERDATA, bytes((0, len(packed))) + packed)


def _packer(family: Family, *attributes: tuple[int, Parts]) -> Callable[..., bytes]:
    """Encoder of elements with attributes of these kinds and parts: one template, as there are 100,000 elements.

    It takes the values of all attributes, and the bytes of further ones. The parts of a value with several are padded
    to four bytes each.
    """
    address = _ADDRESS_BYTES[family], partial(_address, family)
    template, size = b"", _ATTRIBUTE.size
    encoders: list[_Encoder] = []
    for kind, parts in attributes:
        types = [address if part.datatype == "address" else _TYPES.get(part.datatype, _NUMBER) for part in parts]
        encoders += [encoder for _, encoder in types]
        pads = [-width % 4 if len(types) > 1 else 0 for width, _ in types]
        length = sum(width for width, _ in types) + sum(pads)
        value = attribute(kind, attribute(uapi.NFTA_DATA_VALUE, bytes(length)), nested=True)
        end = _ATTRIBUTE.size * 2 + length
        fields = b"".join(b"%%b%b" % bytes(pad) for pad in pads)
        template += value[: end - length].replace(b"%", b"%%") + fields + value[end:]
        size += len(value)
    whole = _head(size).replace(b"%", b"%%") + template

    def encode(values: ElementKey, tail: bytes = b"") -> bytes:
        if len(values) != len(encoders):
            raise ValueError(f"expected {len(encoders)} values, got {len(values)}")
        encoded = whole % tuple(map(call, encoders, values))
        return _head(size + len(tail)) + encoded[_ATTRIBUTE.size :] + tail if tail else encoded

    return encode


def _head(size: int) -> bytes:
    return _ATTRIBUTE.pack(size, uapi.NFTA_LIST_ELEM | uapi.NLA_F_NESTED)


@lru_cache(256)  # the elements of a front have its address
def _address(family: Family, text: str) -> bytes:
    address = packed(text)
    if len(address) != _ADDRESS_BYTES[family]:
        raise ValueError(f"expected an address of {family}, got {text!r}")
    return address
