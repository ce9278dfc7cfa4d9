"""Reads the kernel's nftables: tables, chains, sets, rules by chain, and the counters of map elements.

It is read over netlink since the program nft reads every element of every map before it lists a single name.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Final, TypeVar

from kdns.errors import ApplyError
from kdns.net import Family
from kdns.netlink import uapi
from kdns.netlink.io.requests import Requests
from kdns.netlink.nftables import CounterElement, chain_of_rule, counter_elements, set_or_map
from kdns.netlink.protocol import NFGENMSG, attributes, netfilter_header, text_attribute, text_of

_KIND: Final = uapi.NFNL_SUBSYS_NFTABLES << 8

T = TypeVar("T")


async def object_names(family: Family, table: str) -> dict[str, list[str]]:
    """Names by "chain", "map" and "set"; empty if the table does not exist."""
    names: dict[str, list[str]] = {}
    if chains := (await asyncio.to_thread(nft_chains, family)).get(table):
        names["chain"] = chains
    sets = await asyncio.to_thread(_dumped, uapi.NFT_MSG_GETSET, netfilter_header(family), set_or_map)
    for of, sort, name in sets:
        if of == table:
            names.setdefault(sort, []).append(name)
    return names


async def counters(family: Family, table: str, map_name: str) -> list[CounterElement]:
    """Empty if the map does not exist."""
    names = ((uapi.NFTA_SET_ELEM_LIST_TABLE, table), (uapi.NFTA_SET_ELEM_LIST_SET, map_name))
    body = netfilter_header(family) + b"".join(text_attribute(kind, name) for kind, name in names)
    elements = await asyncio.to_thread(_dumped, uapi.NFT_MSG_GETSETELEM, body, counter_elements)
    return list(chain.from_iterable(elements))


async def tables() -> set[tuple[int, str]]:

    def decode(body: bytes) -> tuple[int, str]:
        return body[0], text_of(attributes(body, NFGENMSG.size)[uapi.NFTA_TABLE_NAME])

    return set(await asyncio.to_thread(_dumped, uapi.NFT_MSG_GETTABLE, netfilter_header(), decode))


def nft_chains(family: Family) -> dict[str, list[str]]:
    """Chains by table. Blocks."""
    chains: dict[str, list[str]] = {}
    for row in _dumped(uapi.NFT_MSG_GETCHAIN, netfilter_header(family), lambda body: attributes(body, NFGENMSG.size)):
        chains.setdefault(text_of(row[uapi.NFTA_CHAIN_TABLE]), []).append(text_of(row[uapi.NFTA_CHAIN_NAME]))
    return chains


def rules(family: Family, table: str, decode: Callable[[bytes], T | None], chain: str = "") -> list[T]:
    """The rules of a table, or of one chain, that are decoded to something. Blocks.

    Kernels before 4.9 list the whole table.
    """
    body = netfilter_header(family) + text_attribute(uapi.NFTA_RULE_TABLE, table)
    body += text_attribute(uapi.NFTA_RULE_CHAIN, chain) if chain else b""
    return _dumped(uapi.NFT_MSG_GETRULE, body, decode)


def rule_counts(family: Family, table: str) -> Counter[str]:
    """The number of rules by chain, without empty chains. Blocks."""
    return Counter(rules(family, table, chain_of_rule))


def _dumped(kind: int, body: bytes, decode: Callable[[bytes], T | None]) -> list[T]:
    """What does not exist is empty; ApplyError for other errors."""
    try:
        with Requests(uapi.NETLINK_NETFILTER) as kernel:
            return kernel.dump(_KIND | kind, body, decode)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ApplyError(("netlink",), f"nftables cannot be read: {error.strerror or error}") from error
