"""Counters that rules of iptables add to by name: objects of nfnetlink_acct. All of this blocks, and is for threads."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from kdns.netlink.io.requests import requests
from kdns.netlink.protocol import NFGENMSG, attributes, text_attribute, text_of
from kdns.netlink.uapi import (
    AF_UNSPEC,
    NETLINK_NETFILTER,
    NFACCT_NAME,
    NFACCT_PKTS,
    NFNL_MSG_ACCT_GET,
    NFNL_MSG_ACCT_NEW,
    NFNL_SUBSYS_ACCT,
    NLM_F_CREATE,
    NLM_F_EXCL,
)

_NEW, _GET = (NFNL_SUBSYS_ACCT << 8 | kind for kind in (NFNL_MSG_ACCT_NEW, NFNL_MSG_ACCT_GET))
_HEADER: Final = NFGENMSG.pack(AF_UNSPEC, 0, 0)


def ensure_counters(names: Iterable[str]) -> None:
    """Creates missing counters; OSError if the kernel does not support them, or does not allow it."""
    with requests(NETLINK_NETFILTER) as kernel:
        for name in names:
            with suppress(FileExistsError):
                kernel.do(_NEW, _HEADER + text_attribute(NFACCT_NAME, name), NLM_F_CREATE | NLM_F_EXCL)


def packets() -> dict[str, int]:
    """Returns the packets of every counter; OSError if they cannot be read."""
    found: dict[str, int] = {}

    def receive(body: bytes) -> None:
        row = attributes(body, NFGENMSG.size)
        found[text_of(row[NFACCT_NAME])] = int.from_bytes(row[NFACCT_PKTS], "big")

    with requests(NETLINK_NETFILTER) as kernel:
        kernel.dump(_GET, _HEADER, receive)
    return found
