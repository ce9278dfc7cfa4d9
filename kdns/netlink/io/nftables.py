"""Reads the kernel's nftables: tables, chains, sets, rules by chain, and the counters of map elements.

It is read over netlink since the program nft reads every element of every map before it lists a single name.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from kdns.errors import ApplyError
from kdns.net import Family
from kdns.netlink.io.requests import InterruptedDumpError, Requests, requests
from kdns.netlink.nftables import CounterElement, chain_of_rule, counter_elements, set_or_map
from kdns.netlink.protocol import (
    ADDRESS_FAMILY,
    NFGENMSG,
    attributes,
    text_attribute,
    text_of,
)
from kdns.netlink.uapi import (
    AF_UNSPEC,
    NETLINK_NETFILTER,
    NFNL_SUBSYS_NFTABLES,
    NFT_MSG_GETCHAIN,
    NFT_MSG_GETRULE,
    NFT_MSG_GETSET,
    NFT_MSG_GETSETELEM,
    NFT_MSG_GETTABLE,
    NFTA_CHAIN_NAME,
    NFTA_CHAIN_TABLE,
    NFTA_RULE_TABLE,
    NFTA_SET_ELEM_LIST_SET,
    NFTA_SET_ELEM_LIST_TABLE,
    NFTA_SET_TABLE,
    NFTA_TABLE_NAME,
)

_KIND: Final = NFNL_SUBSYS_NFTABLES << 8
_READINGS: Final = 10
"""The attempts to read objects that change meanwhile."""

P = ParamSpec("P")
T = TypeVar("T")


def read_again(read: Callable[P, T]) -> Callable[P, T]:
    """Returns the function, called again where its dump was interrupted.

    Raises ApplyError if that is so at the last time too.
    """

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_READINGS):
            with suppress(InterruptedDumpError):
                return read(*args, **kwargs)
        raise ApplyError(("netlink",), "nftables cannot be read: they change all the time")

    return reading


async def object_names(family: Family, table: str) -> dict[str, list[str]]:
    """Returns chains, maps and sets of a table, by "chain", "map" and "set"; empty if the table does not exist."""
    return await asyncio.to_thread(_object_names, family, table)


async def counters(family: Family, table: str, map_name: str) -> list[CounterElement]:
    """Returns the counters of a map of fronts; empty if the map does not exist."""
    return await asyncio.to_thread(_counters, family, table, map_name)


async def tables() -> set[tuple[int, str]]:
    """Returns address family and name of every table."""
    return await asyncio.to_thread(_tables)


async def chains() -> list[tuple[int, str, str]]:
    """Returns address family, table and name of every chain."""
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
        kernel.dump(_KIND | NFT_MSG_GETTABLE, NFGENMSG.pack(AF_UNSPEC, 0, 0), receive)
    return found


@read_again
def _chains(address_family: int = AF_UNSPEC) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = []

    def receive(body: bytes) -> None:
        row = attributes(body, NFGENMSG.size)
        found.append((body[0], text_of(row[NFTA_CHAIN_TABLE]), text_of(row[NFTA_CHAIN_NAME])))

    with _nftables() as kernel:
        kernel.dump(_KIND | NFT_MSG_GETCHAIN, NFGENMSG.pack(address_family, 0, 0), receive)
    return found


def nft_chains(family: Family) -> dict[str, list[str]]:
    """Returns the chains of a family's tables, by table. Blocks."""
    found: dict[str, list[str]] = {}
    for _, table, name in _chains(ADDRESS_FAMILY[family]):
        found.setdefault(table, []).append(name)
    return found


def count_rules(family: Family, table: str, add: Callable[[str, bytes], None]) -> None:
    """Calls `add` with the chain of every rule of a table, and the rule's message. Blocks. For `read_again`."""
    where = text_attribute(NFTA_RULE_TABLE, table)
    with _nftables() as kernel:
        header = NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0)
        kernel.dump(_KIND | NFT_MSG_GETRULE, header + where, lambda body: add(chain_of_rule(body), body))


@read_again
def rule_counts(family: Family, table: str) -> Counter[str]:
    """Returns the number of rules in each chain of a table that has any. Blocks."""
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

    def named_set(row: dict[int, bytes]) -> None:
        if kind_and_name := set_or_map(row):
            found.setdefault(kind_and_name[0], []).append(kind_and_name[1])

    with _nftables() as kernel:
        header = NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0)
        kernel.dump(_KIND | NFT_MSG_GETCHAIN, header, of_table(NFTA_CHAIN_TABLE, chain))
        kernel.dump(_KIND | NFT_MSG_GETSET, header, of_table(NFTA_SET_TABLE, named_set))
    return found


@read_again
def _counters(family: Family, table: str, map_name: str) -> list[CounterElement]:
    elements: list[CounterElement] = []
    where = text_attribute(NFTA_SET_ELEM_LIST_TABLE, table) + text_attribute(NFTA_SET_ELEM_LIST_SET, map_name)
    with _nftables() as kernel:
        header = NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0)
        kernel.dump(_KIND | NFT_MSG_GETSETELEM, header + where, lambda body: elements.extend(counter_elements(body)))
    return elements
