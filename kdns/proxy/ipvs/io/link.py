"""The link kube-ipvs0, whose addresses are the virtual IPs: a packet to one of them comes to the node, and so to IPVS.

It has kube-proxy's name, so that either of the two finds and removes what the other has left. All of it blocks.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from kdns.errors import ApplyError
from kdns.netlink.addresses import VIRTUAL_LINK, Link
from kdns.netlink.io.addresses import add_link, bring_link_up, find_link, remove_link
from kdns.runtime.requirements import CAPABILITY


def establish() -> Link:
    """Creates the link if it is missing, without bringing it up."""
    with _explained():
        if (existing := find_link(VIRTUAL_LINK)) is None:
            add_link(VIRTUAL_LINK, "dummy")
            existing = find_link(VIRTUAL_LINK)
        if existing is None:
            raise OSError(errno.ENODEV, "it was removed meanwhile")
        return existing


def bring_up(index: int) -> None:
    """Brings the link up, whereby its addresses become the node's. It answers no ARP: nobody asks there."""
    with _explained():
        bring_link_up(index)


def remove() -> bool:
    with _explained():
        existing = find_link(VIRTUAL_LINK)
        if existing:
            remove_link(existing.index)
        return existing is not None


def unsupported() -> str:
    """Why there can be no such link, or "". Nothing stays of the attempt."""
    name = f"kdns-{os.getpid()}"[:15]
    try:
        with _explained():
            if find_link(VIRTUAL_LINK) is None:
                if not find_link(name):  # a process of this number may have been killed here
                    add_link(name, "dummy")
                if trial := find_link(name):
                    remove_link(trial.index)
    except ApplyError as error:
        return error.stderr
    return ""


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ApplyError(("netlink",), f"link {VIRTUAL_LINK}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if error.errno == errno.EPERM:
        return f"not permitted; {CAPABILITY}"
    if error.errno == errno.EOPNOTSUPP:
        return "the kernel has no dummy links; load its module dummy"
    return error.strerror or str(error)
