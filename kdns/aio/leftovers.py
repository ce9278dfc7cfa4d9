"""What a kube-proxy that ran here before has left in the kernel. kdns's rules come first, being made later.

What kdns does not translate is still theirs, such as the virtual IPs of Services that are gone since.

Nothing is removed, by --cleanup neither: whoever goes back to kube-proxy may have it running by then, and it does not
notice for up to an hour that its rules are gone. Nothing is loaded to look: a table is asked for its chains only where
the kernel says that it is there.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from kdns import logs
from kdns.aio import nftread
from kdns.errors import ApplyError

TABLE: Final = "kube-proxy"
LINK: Final = "kube-ipvs0"
_CHAIN: Final = re.compile(
    r"KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS?|NODE-PORT|PROXY-CANARY|PROXY-FIREWALL|FORWARD|LOAD-BALANCER"
    r"|IPVS-FILTER|(SVC|SVL|EXT|XLB|FW|SEP)-[A-Z0-9]+)"
)
"""Chains of kube-proxy's modes iptables and ipvs that the kubelet has not."""
_FAMILIES: Final[Mapping[int, str]] = {socket.AF_INET: "ip", socket.AF_INET6: "ip6"}
_LEVELS: Final = {"ip": (socket.AF_INET, socket.SOL_IP), "ip6": (socket.AF_INET6, socket.IPPROTO_IPV6)}
_GET_INFO, _GET_ENTRIES = 64, 65  # linux/netfilter_ipv4/ip_tables.h; IPv6 has the same
_INFO_BYTES, _SIZE_AT = 84, 80
_ENTRIES: Final = struct.Struct("=32sI4x")
_WANTED: Final = "kube-proxy --cleanup, from any of its images, or a restart of the machine"

log = logs.get(__name__)


async def tell() -> None:
    """Say which rules of kube-proxy are here, and what to do."""
    for mode, found in (await leftovers()).items():
        rest = f" and {len(found) - 1} more" if found[1:] else ""
        wanted = " and ".join(f"nft delete {table}" for table in found) if mode == "nftables" else _WANTED
        log.warning("rules of kube-proxy are here too", mode=mode, found=found[0] + rest, wanted=wanted)


async def leftovers() -> dict[str, list[str]]:
    """What is there, by kube-proxy's mode; what cannot be asked is not there."""
    tables, chains = set[tuple[int, str]](), list[tuple[int, str, str]]()
    with suppress(ApplyError):
        tables = await nftread.tables()
    with suppress(ApplyError):
        chains = await nftread.chains()
    legacy = await asyncio.to_thread(lambda: sorted(_legacy()))
    links = [name for _, name in socket.if_nameindex() if name == LINK]
    translated = [f"{_FAMILIES[of]} {table} {name}" for of, table, name in sorted(chains) if of in _FAMILIES]
    found = {
        "nftables": [
            f"table {_FAMILIES[of]} {name}" for of, name in sorted(tables) if of in _FAMILIES and name == TABLE
        ],
        "iptables": [each for each in (*translated, *legacy) if _CHAIN.fullmatch(each.rpartition(" ")[2])],
        "ipvs": [f"link {name}" for name in links],
    }
    return {mode: rows for mode, rows in found.items() if rows}


def _legacy() -> Iterator[str]:
    """Family, table and chain of what was written by iptables-legacy, which nftables does not know of."""
    for ip in _LEVELS:
        with suppress(OSError):
            for table in Path(f"/proc/self/net/{ip}_tables_names").read_text(encoding="ascii").split():
                yield from (f"{ip} {table} {name}" for name in legacy_chains(_entries(ip, table.encode())))


def legacy_chains(entries: bytes) -> set[str]:
    """The names in a table's entries that begin as kube-proxy's chains do."""
    return {found.group().decode() for found in re.finditer(rb"KUBE-[A-Z0-9-]+(?=\0)", entries)}


def _entries(ip: str, table: bytes) -> bytes:
    family, level = _LEVELS[ip]
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        told = _option(asking, level, _GET_INFO, table.ljust(_INFO_BYTES, b"\0"))
        (size,) = struct.unpack_from("=I", told, _SIZE_AT)
        return _option(asking, level, _GET_ENTRIES, _ENTRIES.pack(table, size).ljust(_ENTRIES.size + size, b"\0"))


def _option(asking: socket.socket, level: int, option: int, question: bytes) -> bytes:
    """getsockopt with something to read in what is written to, which Python's own has not."""
    told = ctypes.create_string_buffer(question, len(question))
    length = ctypes.c_uint32(len(question))
    if ctypes.CDLL(None, use_errno=True).getsockopt(asking.fileno(), level, option, told, ctypes.byref(length)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return told.raw
