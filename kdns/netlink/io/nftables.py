"""What the kernel's nftables hold: tables, chains, sets, rules by chain, and the counters of map elements.

It is read over netlink since the program nft reads every element of every map before it lists a single name.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Final, NamedTuple, ParamSpec, TypeVar

from kdns.errors import ApplyError
from kdns.net import Family, unpacked
from kdns.netlink.io.protocol import (
    ADDRESS_FAMILY,
    NFGENMSG,
    InterruptedDumpError,
    Requests,
    attribute,
    attribute_spans,
    attributes,
    requests,
    text_of,
)
from kdns.netlink.uapi import (
    NETLINK_NETFILTER,
    NFNL_SUBSYS_NFTABLES,
    NFT_MSG_GETCHAIN,
    NFT_MSG_GETRULE,
    NFT_MSG_GETSET,
    NFT_MSG_GETSETELEM,
    NFT_MSG_GETTABLE,
    NFT_SET_ANONYMOUS,
    NFT_SET_MAP,
    NFTA_CHAIN_NAME,
    NFTA_CHAIN_TABLE,
    NFTA_COUNTER_BYTES,
    NFTA_COUNTER_PACKETS,
    NFTA_DATA_VALUE,
    NFTA_EXPR_DATA,
    NFTA_LIST_ELEM,
    NFTA_RULE_TABLE,
    NFTA_SET_ELEM_EXPR,
    NFTA_SET_ELEM_EXPRESSIONS,
    NFTA_SET_ELEM_KEY,
    NFTA_SET_ELEM_LIST_ELEMENTS,
    NFTA_SET_ELEM_LIST_SET,
    NFTA_SET_ELEM_LIST_TABLE,
    NFTA_SET_FLAGS,
    NFTA_SET_NAME,
    NFTA_SET_TABLE,
    NFTA_TABLE_NAME,
)

_KIND: Final = NFNL_SUBSYS_NFTABLES << 8
_LENGTH: Final = struct.Struct("=H")
_PROTOCOLS: Final = {socket.IPPROTO_TCP: "TCP", socket.IPPROTO_UDP: "UDP", socket.IPPROTO_SCTP: "SCTP"}
_PORT_BYTES: Final = 8
"""What protocol and port take at the end of a key: every part of a key is padded to four bytes."""
_READINGS: Final = 10
"""How often objects are read that change meanwhile. A transaction of any program, in any table, interrupts a dump."""

P = ParamSpec("P")
T = TypeVar("T")


def read_again(read: Callable[P, T]) -> Callable[P, T]:
    """The function, called again where its dump was interrupted; ApplyError where that is so at the last time too."""

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_READINGS):
            with suppress(InterruptedDumpError):
                return read(*args, **kwargs)
        raise ApplyError(("netlink",), "nftables cannot be read: they change all the time")

    return reading


class CounterElement(NamedTuple):
    """The element of one front in a map: its address ("" for a node port), protocol and port, and its counter."""

    address: str
    protocol: str
    port: int
    packets: int
    octets: int


async def object_names(family: Family, table: str) -> dict[str, list[str]]:
    """Chains, maps and sets of a table, by "chain", "map" and "set"; empty where there is no such table."""
    return await asyncio.to_thread(_object_names, family, table)


async def counters(family: Family, table: str, map_name: str) -> list[CounterElement]:
    """The counters of a map of fronts; empty where there is no such map."""
    return await asyncio.to_thread(_counters, family, table, map_name)


async def tables() -> set[tuple[int, str]]:
    """Address family and name of every table."""
    return await asyncio.to_thread(_tables)


async def chains() -> list[tuple[int, str, str]]:
    """Address family, table and name of every chain."""
    return await asyncio.to_thread(_chains)


@contextmanager
def _nftables() -> Iterator[Requests]:
    """Requests to nftables; what does not exist has no content, other errors are ApplyError. For `read_again`."""
    try:
        with requests(NETLINK_NETFILTER) as kernel:
            yield kernel
    except FileNotFoundError:
        return
    except InterruptedDumpError:
        raise
    except OSError as error:
        raise ApplyError(("netlink",), f"nftables cannot be read: {error.strerror or error}") from error


@read_again
def _tables() -> set[tuple[int, str]]:
    found: set[tuple[int, str]] = set()

    def receive(body: bytes) -> None:
        found.add((body[0], text_of(attributes(body, NFGENMSG.size)[NFTA_TABLE_NAME])))

    with _nftables() as kernel:
        kernel.dump(_KIND | NFT_MSG_GETTABLE, NFGENMSG.pack(socket.AF_UNSPEC, 0, 0), receive)
    return found


@read_again
def _chains(address_family: int = socket.AF_UNSPEC) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = []

    def receive(body: bytes) -> None:
        row = attributes(body, NFGENMSG.size)
        found.append((body[0], text_of(row[NFTA_CHAIN_TABLE]), text_of(row[NFTA_CHAIN_NAME])))

    with _nftables() as kernel:
        kernel.dump(_KIND | NFT_MSG_GETCHAIN, NFGENMSG.pack(address_family, 0, 0), receive)
    return found


def nft_chains(family: Family) -> dict[str, list[str]]:
    """The chains of a family's tables, by table. Blocks."""
    found: dict[str, list[str]] = {}
    for _, table, name in _chains(ADDRESS_FAMILY[family]):
        found.setdefault(table, []).append(name)
    return found


def count_rules(family: Family, table: str, add: Callable[[str, bytes], None]) -> None:
    """Call `add` with the chain of every rule of a table, and the rule's message. Blocks. For `read_again`."""

    def receive(body: bytes) -> None:
        (length,) = _LENGTH.unpack_from(body, NFGENMSG.size)  # the name of the table comes first, then the chain's
        at = NFGENMSG.size + (length + 3 & ~3)
        (length,) = _LENGTH.unpack_from(body, at)
        add(body[at + 4 : at + length - 1].decode(errors="replace"), body)

    where = attribute(NFTA_RULE_TABLE, table.encode() + b"\0")
    with _nftables() as kernel:
        kernel.dump(_KIND | NFT_MSG_GETRULE, NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0) + where, receive)


@read_again
def rule_counts(family: Family, table: str) -> Counter[str]:
    """The number of rules in each chain of a table that has any. Blocks."""
    found: Counter[str] = Counter()
    count_rules(family, table, lambda chain, _: found.update((chain,)))
    return found


@read_again
def _object_names(family: Family, table: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}

    def of_table(kind: int, add: Callable[[dict[int, bytes]], None]) -> Callable[[bytes], None]:
        def receive(body: bytes) -> None:
            row = attributes(body, NFGENMSG.size)
            if text_of(row[kind]) == table:
                add(row)

        return receive

    def chain(row: dict[int, bytes]) -> None:
        found.setdefault("chain", []).append(text_of(row[NFTA_CHAIN_NAME]))

    def set_or_map(row: dict[int, bytes]) -> None:
        flags = _integer(row.get(NFTA_SET_FLAGS, b""))
        if not flags & NFT_SET_ANONYMOUS:
            found.setdefault("map" if flags & NFT_SET_MAP else "set", []).append(text_of(row[NFTA_SET_NAME]))

    with _nftables() as kernel:
        header = NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0)
        kernel.dump(_KIND | NFT_MSG_GETCHAIN, header, of_table(NFTA_CHAIN_TABLE, chain))
        kernel.dump(_KIND | NFT_MSG_GETSET, header, of_table(NFTA_SET_TABLE, set_or_map))
    return found


@read_again
def _counters(family: Family, table: str, map_name: str) -> list[CounterElement]:
    found: list[CounterElement] = []

    def receive(body: bytes) -> None:
        start, end = next(
            (start, end)
            for kind, start, end in attribute_spans(body, NFGENMSG.size, len(body))
            if kind == NFTA_SET_ELEM_LIST_ELEMENTS
        )
        for _, at, until in attribute_spans(body, start, end):
            element = attributes(body[at:until])
            found.append(_counter_element(attributes(element[NFTA_SET_ELEM_KEY])[NFTA_DATA_VALUE], element))

    where = attribute(NFTA_SET_ELEM_LIST_TABLE, table.encode() + b"\0")
    where += attribute(NFTA_SET_ELEM_LIST_SET, map_name.encode() + b"\0")
    with _nftables() as kernel:
        kernel.dump(_KIND | NFT_MSG_GETSETELEM, NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0) + where, receive)
    return found


def _counter_element(key: bytes, element: dict[int, bytes]) -> CounterElement:
    """The element of a key: [address .] protocol . port."""
    packed, protocol = key[:-_PORT_BYTES], key[-_PORT_BYTES]
    address = unpacked(packed) if packed else ""
    port = int.from_bytes(key[-_PORT_BYTES + 4 : -_PORT_BYTES + 6], "big")
    return CounterElement(address, _PROTOCOLS.get(protocol, str(protocol)), port, *_counter(element))


def _counter(element: dict[int, bytes]) -> tuple[int, int]:
    """Packets and bytes; zeros for an element without a counter."""
    expression = element.get(NFTA_SET_ELEM_EXPR)
    if expression is None:
        expression = attributes(element.get(NFTA_SET_ELEM_EXPRESSIONS, b"")).get(NFTA_LIST_ELEM, b"")
    row = attributes(attributes(expression).get(NFTA_EXPR_DATA, b""))
    return _integer(row.get(NFTA_COUNTER_PACKETS, b"")), _integer(row.get(NFTA_COUNTER_BYTES, b""))


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "big")
