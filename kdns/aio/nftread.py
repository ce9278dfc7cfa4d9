"""What the kernel's nftables hold, asked over netlink: names in a table, and the counters of a map's elements.

The program nft reads every element of every map before it lists a single name.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Final, NamedTuple, TypeVar

from kdns.aio.netlink import NETFILTER, Requests, attribute, attributes, places
from kdns.errors import ApplyError
from kdns.proxy.config import Family
from kdns.proxy.nftables import TABLE

T = TypeVar("T")

_AF: Final = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}
_GET_CHAINS, _GET_SETS, _GET_ELEMENTS, _GET_TABLES = (10 << 8 | kind for kind in (4, 10, 13, 1))
_GENERIC: Final = struct.Struct("=BBH")
_TABLE, _CHAIN_NAME, _SET_NAME, _SET_FLAGS = 1, 3, 2, 3
_ANONYMOUS, _MAP = 0x1, 0x8
_ELEMENTS_TABLE, _ELEMENTS_SET, _ELEMENTS_LIST = 1, 2, 3
_ELEMENT_KEY, _ELEMENT_EXPRESSION, _ELEMENT_EXPRESSIONS = 1, 7, 11
_EXPRESSION_DATA: Final = 2
_COUNTER_BYTES, _COUNTER_PACKETS = 1, 2
_VALUE: Final = 1
_PROTOCOLS: Final = {socket.IPPROTO_TCP: "TCP", socket.IPPROTO_UDP: "UDP", 132: "SCTP"}


class Counted(NamedTuple):
    """One front's element: its address ("" for a node port), protocol and port, and what it has counted."""

    address: str
    protocol: str
    port: int
    packets: int
    octets: int


async def names(family: Family) -> dict[str, list[str]]:
    """Chains, maps and sets of kdns's table, by "chain", "map" and "set"; nothing where there is no table."""
    return await asyncio.to_thread(_names, family)


async def counted(family: Family, map_name: str) -> list[Counted]:
    """The counters of a map of fronts; none where there is no such map."""
    return await asyncio.to_thread(_counted, family, map_name)


async def tables() -> set[tuple[int, str]]:
    """Address family and name of every table."""
    return await asyncio.to_thread(_tables)


async def chains() -> list[tuple[int, str, str]]:
    """Address family, table and name of every chain."""
    return await asyncio.to_thread(_chains)


@contextmanager
def _asking() -> Iterator[Requests]:
    try:
        requests = Requests(NETFILTER)
    except OSError as error:
        raise ApplyError(("netlink",), f"nftables cannot be asked: {error.strerror}") from error
    try:
        yield requests
    except FileNotFoundError:
        return
    except OSError as error:
        raise ApplyError(("netlink",), f"nftables cannot be read: {error.strerror or error}") from error
    finally:
        requests.close()


def _tables() -> set[tuple[int, str]]:
    found: set[tuple[int, str]] = set()

    def table(body: bytes) -> None:
        found.add((body[0], _text(attributes(body, _GENERIC.size)[_TABLE])))

    with _asking() as requests:
        requests.dump(_GET_TABLES, _GENERIC.pack(socket.AF_UNSPEC, 0, 0), table)
    return found


def _chains() -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = []

    def chain(body: bytes) -> None:
        row = attributes(body, _GENERIC.size)
        found.append((body[0], _text(row[_TABLE]), _text(row[_CHAIN_NAME])))

    with _asking() as requests:
        requests.dump(_GET_CHAINS, _GENERIC.pack(socket.AF_UNSPEC, 0, 0), chain)
    return found


def _names(family: Family) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}

    def of_table(add: Callable[[dict[int, bytes]], None]) -> Callable[[bytes], None]:
        def read(body: bytes) -> None:
            row = attributes(body, _GENERIC.size)
            if _text(row[_TABLE]) == TABLE:
                add(row)

        return read

    def chain(row: dict[int, bytes]) -> None:
        found.setdefault("chain", []).append(_text(row[_CHAIN_NAME]))

    def a_set(row: dict[int, bytes]) -> None:
        flags = int.from_bytes(row.get(_SET_FLAGS, b""), "big")
        if not flags & _ANONYMOUS:
            found.setdefault("map" if flags & _MAP else "set", []).append(_text(row[_SET_NAME]))

    with _asking() as requests:
        generic = _GENERIC.pack(_AF[family], 0, 0)
        requests.dump(_GET_CHAINS, generic, of_table(chain))
        requests.dump(_GET_SETS, generic, of_table(a_set))
    return found


def _counted(family: Family, map_name: str) -> list[Counted]:
    found: list[Counted] = []
    address_bytes = 0 if "nodeport" in map_name else 4 if family == "IPv4" else 16

    def elements(body: bytes) -> None:
        start, end = next(
            (start, end) for kind, start, end in places(body, _GENERIC.size, len(body)) if kind == _ELEMENTS_LIST
        )
        for _, at, until in places(body, start, end):
            element = attributes(body[at:until])
            key, counter = attributes(element[_ELEMENT_KEY])[_VALUE], _counter(element)
            address = str(ip_address(key[:address_bytes])) if address_bytes else ""
            # Every part of a key takes a multiple of four bytes.
            protocol, port = key[address_bytes], int.from_bytes(key[address_bytes + 4 : address_bytes + 6], "big")
            found.append(Counted(address, _PROTOCOLS.get(protocol, str(protocol)), port, *counter))

    asked = attribute(_ELEMENTS_TABLE, TABLE.encode() + b"\0") + attribute(_ELEMENTS_SET, map_name.encode() + b"\0")
    with _asking() as requests:
        requests.dump(_GET_ELEMENTS, _GENERIC.pack(_AF[family], 0, 0) + asked, elements)
    return found


def _counter(element: dict[int, bytes]) -> tuple[int, int]:
    """Packets and bytes; zeros for an element without a counter."""
    expression = element.get(_ELEMENT_EXPRESSION) or attributes(element.get(_ELEMENT_EXPRESSIONS, b"")).get(1, b"")
    row = attributes(attributes(expression).get(_EXPRESSION_DATA, b""))
    return int.from_bytes(row.get(_COUNTER_PACKETS, b""), "big"), int.from_bytes(row.get(_COUNTER_BYTES, b""), "big")


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")
