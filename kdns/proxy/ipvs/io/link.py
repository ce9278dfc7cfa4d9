"""The link kube-ipvs0, whose addresses are the virtual IPs: a packet to one of them comes to the node, and so to IPVS.

It has kube-proxy's name, so that either of the two finds and removes what the other has left. All of it blocks.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from pyroute2 import IPRoute  # type: ignore[attr-defined] # made at run time
from pyroute2.netlink.exceptions import NetlinkError

from kdns.errors import ApplyError
from kdns.netlink.links import VIRTUAL_LINK
from kdns.runtime.requirements import CAPABILITY

_IFF_UP = 0x1


class Link(NamedTuple):
    """A link that is there, with its number."""

    number: int
    is_up: bool


def establish() -> Link:
    """Returns the link, which is made if it is not there; it is not brought up."""
    with _kernel() as kernel:
        if (existing := _found(kernel)) is None:
            kernel.link("add", ifname=VIRTUAL_LINK, kind="dummy")
            existing = _found(kernel)
        assert existing  # noqa: S101 - it was made
        return existing


def bring_up(index: int) -> None:
    """Brings the link up, whereby its addresses become the node's. It answers no ARP: nobody asks there."""
    with _kernel() as kernel:
        kernel.link("set", index=index, state="up")


def remove() -> bool:
    """Removes the link with its addresses; whether it was there."""
    with _kernel() as kernel:
        existing = _found(kernel)
        if existing:
            kernel.link("del", index=existing.number)
        return existing is not None


def unsupported() -> str:
    """Returns why there can be no such link, "" if there can. Nothing stays of the attempt."""
    name = f"kdns-{os.getpid()}"[:15]
    try:
        with _kernel() as kernel:
            if _found(kernel) is None:
                if not _index(name):  # a process of this number may have been killed here
                    kernel.link("add", ifname=name, kind="dummy")
                kernel.link("del", index=_index(name))
    except ApplyError as error:
        return error.stderr
    return ""


@contextmanager
def _kernel() -> Iterator[Any]:
    make: Any = IPRoute
    try:
        with make() as kernel:
            yield kernel
    except (NetlinkError, OSError) as error:
        number = error.code if isinstance(error, NetlinkError) else error.errno
        raise ApplyError(("netlink",), f"link {VIRTUAL_LINK}: {_reason(number, error)}") from error


def _found(kernel: Any) -> Link | None:
    for each in kernel.get_links(index) if (index := _index(VIRTUAL_LINK)) else ():
        return Link(index, bool(each["flags"] & _IFF_UP))
    return None


def _index(name: str) -> int:
    """Returns the number of a link; 0 if it does not exist. A list of links may change while it is read."""
    with suppress(OSError):
        return socket.if_nametoindex(name)
    return 0


def _reason(number: int | None, error: Exception) -> str:
    if number == errno.EPERM:
        return f"not permitted; {CAPABILITY}"
    if number == errno.EOPNOTSUPP:
        return "the kernel has no dummy links; load its module dummy"
    return os.strerror(number) if number else str(error)
