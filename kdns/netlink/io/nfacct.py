"""Counters that rules of iptables add to by name: objects of nfnetlink_acct. All of this blocks, and is for threads."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from kdns.netlink import uapi
from kdns.netlink.io.requests import Requests
from kdns.netlink.protocol import NFGENMSG, attributes, big_endian, netfilter_header, text_attribute, text_of

_NEW, _GET = (uapi.NFNL_SUBSYS_ACCT << 8 | kind for kind in (uapi.NFNL_MSG_ACCT_NEW, uapi.NFNL_MSG_ACCT_GET))
_HEADER: Final = netfilter_header()


def ensure_counters(names: Iterable[str]) -> None:
    """Creates missing counters; OSError if the kernel does not support them, or does not allow it."""
    with Requests(uapi.NETLINK_NETFILTER) as kernel:
        for name in names:
            with suppress(FileExistsError):
                kernel.do(_NEW, _HEADER + text_attribute(uapi.NFACCT_NAME, name), uapi.NLM_F_CREATE | uapi.NLM_F_EXCL)


def packets() -> dict[str, int]:

    def decode(body: bytes) -> tuple[str, int]:
        row = attributes(body, NFGENMSG.size)
        return text_of(row[uapi.NFACCT_NAME]), big_endian(row[uapi.NFACCT_PKTS])

    with Requests(uapi.NETLINK_NETFILTER) as kernel:
        return dict(kernel.dump(_GET, _HEADER, decode))
