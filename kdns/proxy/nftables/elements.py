"""Elements of sets and maps as messages of netlink, for as many as the program nft would take 3 KiB of memory each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from ipaddress import ip_network
from typing import Any, Final, TypeAlias

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
    NLA_F_NESTED,
)
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
    comment_text,
)
from kdns.proxy.nftables.transaction import Transaction

Request: TypeAlias = tuple[int, bytes]
"""The type and the payload of a message."""

_KIND: Final = NFNL_SUBSYS_NFTABLES << 8
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
    encode = _encoder(family, into)
    part: list[bytes] = []
    for key, data in elements:
        try:
            body = encode(key, data)
        except (OSError, ValueError, OverflowError, KeyError, struct.error) as error:
            raise ApplyError(("netlink",), f"{into.name} cannot have the element {key}: {error}") from error
        part.append(_ATTRIBUTE.pack(_ATTRIBUTE.size + len(body), NFTA_LIST_ELEM | NLA_F_NESTED))
        part.append(body)
        size += _ATTRIBUTE.size + len(body)
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


def _encoder(family: Family, into: Set) -> Callable[[ElementKey, Data], bytes]:
    """Returns what encodes the elements of one set, as the content of NFTA_LIST_ELEM."""
    encoded_key = _packer(family, into.key, NFTA_SET_ELEM_KEY)
    encoded_end = _packer(family, into.key, NFTA_SET_ELEM_KEY_END)
    encoded_data = _packer(family, into.data, NFTA_SET_ELEM_DATA) if into.data and VERDICT not in into.data else None

    def encode(key: ElementKey, data: Data) -> bytes:
        if into.has_intervals:
            network = ip_network(str(key[-1]))
            return encoded_key((*key[:-1], str(network[0]))) + encoded_end((*key[:-1], str(network[-1])))
        if data is None:
            return encoded_key(key)
        if isinstance(data, Goto):
            return encoded_key(key) + _goto(data.chain)
        assert encoded_data  # noqa: S101 - any other data is of a map without verdicts
        if isinstance(data, Number):
            return encoded_key(key) + encoded_data((data.number,)) + _comment(data.comment)
        return encoded_key(key) + encoded_data(data if isinstance(data, AddressPort) else (data,))

    return encode


def _goto(name: str) -> bytes:
    chain_name = attribute(NFTA_VERDICT_CHAIN, name.encode() + b"\0")
    verdict = attribute(NFTA_VERDICT_CODE, _CODE.pack(NFT_GOTO)) + chain_name
    return attribute(NFTA_SET_ELEM_DATA, attribute(NFTA_DATA_VERDICT, verdict, nested=True), nested=True)


@lru_cache
def _comment(text: str) -> bytes:
    """Returns a comment as libnftnl keeps it: type 0, length, and text with a terminating zero."""
    packed = comment_text(text).encode() + b"\0"
    return attribute(NFTA_SET_ELEM_USERDATA, bytes((0, len(packed))) + packed)


def _packer(family: Family, parts: Parts, kind: int) -> Callable[[tuple[str | int, ...]], bytes]:
    """Returns what encodes values of these parts as an attribute: one struct, since there are 100,000 of them.

    The parts of a value with several are padded to four bytes each.
    """
    address = _ADDRESS_BYTES[family], partial(_address, family)
    types = [address if part.datatype == "address" else _TYPES.get(part.datatype, _NUMBER) for part in parts]
    padded = [size + -size % 4 for size, _ in types] if len(types) > 1 else [size for size, _ in types]
    length = _ATTRIBUTE.size + sum(padded)
    head = _ATTRIBUTE.pack(_ATTRIBUTE.size + length + -length % 4, kind | NLA_F_NESTED)
    head += _ATTRIBUTE.pack(length, NFTA_DATA_VALUE)
    fields = "".join(f"{size}s{whole - size}x" for (size, _), whole in zip(types, padded, strict=True))
    encoders = [encoder for _, encoder in types]
    pack = struct.Struct(f"={len(head)}s{fields}{-length % 4}x").pack

    def encode(values: tuple[str | int, ...]) -> bytes:
        return pack(head, *[encoder(value) for encoder, value in zip(encoders, values, strict=True)])

    return encode


@lru_cache(1 << 16)
def _address(family: Family, text: str) -> bytes:
    address = packed(text)
    if len(address) != _ADDRESS_BYTES[family]:
        raise ValueError(f"expected an address of {family}, got {text!r}")
    return address
