"""Reads the kernel's tables of iptables: chains, the number of their rules, and jumps from built-in chains.

iptables-legacy has tables of its own in the kernel, which are read by getsockopt(2); those of iptables-nft are tables
of nftables with the same names. Reading makes no table and loads no module. All of this blocks, and is for threads.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

from kdns.net import Family
from kdns.netlink.io.nftables import nft_chains, rules
from kdns.netlink.nftables import chain_of_rule
from kdns.netlink.xtables import HOOKS, Backend, TableContent, chains_in, content_of_entries

_PROC: Final[dict[Family, str]] = {"IPv4": "ip", "IPv6": "ip6"}
_LEVELS: Final = {"IPv4": (socket.AF_INET, socket.SOL_IP), "IPv6": (socket.AF_INET6, socket.IPPROTO_IPV6)}
_GET_INFO, _GET_ENTRIES = 64, 65  # linux/netfilter_ipv4/ip_tables.h; IPv6 has the same
_INFO: Final = struct.Struct("=32sI5I5III")
"""struct ipt_getinfo: name, hooks, where the chain of each hook begins, where its policy is, entries and bytes."""
_REQUEST: Final = struct.Struct("=32sI4x")
_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.005


def legacy_tables(family: Family) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/self/net/{_PROC[family]}_tables_names").read_text(encoding="ascii").split()
    return []


def legacy_size(family: Family, table: str) -> tuple[int, int]:
    """Entries and bytes: most changes of rules change at least one of them. OSError if the table cannot be read."""
    *_, entries, octets = _info(family, table)
    return entries, octets


def legacy_content(family: Family, table: str) -> TableContent:
    """OSError if the table cannot be read.

    The kernel requires the table's size in the request, and the size may have changed since it was read.
    """
    for _ in range(_ATTEMPTS):
        with suppress(BlockingIOError):
            return _legacy_content(family, table)
        time.sleep(_PAUSE_S)
    return _legacy_content(family, table)


def _legacy_content(family: Family, table: str) -> TableContent:
    _, hooks, *rest = _info(family, table)
    begins, ends, octets = rest[:5], rest[5:10], rest[11]
    at, level = _LEVELS[family]
    with socket.socket(at, socket.SOCK_DGRAM) as sock:
        request = bytearray(_REQUEST.size + octets)  # the table may have 100 MiB: it is copied nowhere
        _REQUEST.pack_into(request, 0, table.encode(), octets)
        entries = memoryview(_option(sock, level, _GET_ENTRIES, request))[_REQUEST.size :]
    built_in = [(begins[hook], ends[hook], HOOKS[hook]) for hook in range(5) if hooks & 1 << hook]
    return content_of_entries(family, entries, built_in)


def chains_by_table(backend: Backend, family: Family) -> dict[str, list[str]]:
    """Includes the tables of other programs; ApplyError or OSError if they cannot be read."""
    if backend == "nft":
        return nft_chains(family)
    return {table: list(legacy_content(family, table).rules) for table in legacy_tables(family)}


def table_content(backend: Backend, family: Family, table: str) -> TableContent:
    """Empty if the table does not exist; ApplyError or OSError if it cannot be read."""
    if backend == "legacy":
        return legacy_content(family, table) if table in legacy_tables(family) else TableContent()

    def decode(rule: bytes) -> tuple[str, tuple[str, ...]]:
        chain = chain_of_rule(rule)
        return chain, tuple(chains_in(rule)) if chain in HOOKS else ()

    content = TableContent(Counter(dict.fromkeys(nft_chains(family).get(table, ()), 0)))
    for chain, targets in rules(family, table, decode):
        content.rules[chain] += 1
        content.jumps.update((chain, target) for target in targets)
    return content


def jump_targets(backend: Backend, family: Family, table: str, chain: str) -> set[str]:
    """The chains that a built-in chain leads to; ApplyError or OSError if it cannot be read."""
    if backend == "legacy":
        return {target for source, target in table_content(backend, family, table).jumps if source == chain}

    def decode(rule: bytes) -> tuple[str, ...] | None:
        return tuple(chains_in(rule)) if chain_of_rule(rule) == chain else None

    return set[str]().union(*rules(family, table, decode, chain))


def _info(family: Family, table: str) -> tuple[int, ...]:
    at, level = _LEVELS[family]
    with socket.socket(at, socket.SOCK_DGRAM) as sock:
        request = bytearray(_INFO.size)
        request[: len(table)] = table.encode()
        return _INFO.unpack(_option(sock, level, _GET_INFO, request))


def _option(sock: socket.socket, level: int, option: int, buffer: bytearray) -> bytearray:
    """getsockopt with a request in the buffer for the result, which Python's own does not support."""
    length = ctypes.c_uint32(len(buffer))
    place = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    if ctypes.CDLL(None, use_errno=True).getsockopt(sock.fileno(), level, option, place, ctypes.byref(length)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer
