"""Lists connections of the kernel's connection tracking, and deletes UDP flows. All block: for other threads."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from kdns.net import Family
from kdns.netlink.conntrack import LIST_FLOWS, Connection, Flow, connection_of, deletion, flow_of, udp_request
from kdns.netlink.io.requests import Requests
from kdns.netlink.protocol import netfilter_header
from kdns.netlink.uapi import NETLINK_NETFILTER

_BATCH: Final = 4096


def udp_flows(family: Family, is_selected: Callable[[Flow], bool] = lambda _: True) -> list[Flow]:
    """OSError if connection tracking cannot be listed."""

    def decode(body: bytes) -> Flow | None:
        flow = flow_of(body, family)
        return flow if flow and is_selected(flow) else None

    with Requests(NETLINK_NETFILTER) as kernel:
        return kernel.dump(LIST_FLOWS, udp_request(family), decode)


def connections(family: Family, is_selected: Callable[[Connection], bool]) -> list[Connection]:
    """OSError if connection tracking cannot be listed."""

    def decode(body: bytes) -> Connection | None:
        connection = connection_of(body, family)
        return connection if connection and is_selected(connection) else None

    with Requests(NETLINK_NETFILTER) as kernel:
        return kernel.dump(LIST_FLOWS, netfilter_header(family), decode)


def delete_flows(family: Family, flows: Iterable[Flow]) -> int:
    """Deletes these flows; returns how many of them still existed. OSError if the kernel refuses for other reasons."""
    deleted = 0
    with Requests(NETLINK_NETFILTER) as kernel:
        remaining = iter(flows)
        while batch := [deletion(family, flow) for flow in islice(remaining, _BATCH)]:
            refused = kernel.do_all(batch)
            deleted += len(batch) - len(refused)
            for error in refused.values():
                if error != errno.ENOENT:
                    raise OSError(error, os.strerror(error))
    return deleted
