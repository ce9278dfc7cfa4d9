"""The interface of a node-local DNS cache: a link without cables that has the addresses that the node's Pods ask."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from pyroute2 import IPRoute  # type: ignore[attr-defined] # made at run time
from pyroute2.netlink.exceptions import NetlinkError

from kdns.errors import ApplyError
from kdns.net import is_ipv6

KINDS = ("dummy", "bridge")
"""Kinds of links by preference. A bridge without ports has the same effect if the kernel has no dummy links."""


def establish(name: str, addresses: Iterable[str]) -> bool:
    """Makes sure that the link is up and has these addresses; whether anything was missing. Raises ApplyError."""
    try:
        with _kernel() as kernel:
            index, was_missing = _link(kernel, name)
            held = {str(ip_address(each.get_attr("IFA_ADDRESS"))) for each in kernel.get_addr(index=index)}
            missing = [address for address in addresses if address not in held]
            for address in missing:
                # Without duplicate address detection: on no other machine is this address meant.
                flags = {"flags": 0x02} if is_ipv6(address) else {}
                kernel.addr("add", index=index, address=address, prefixlen=128 if is_ipv6(address) else 32, **flags)
    except (NetlinkError, OSError) as error:
        raise ApplyError(("netlink",), f"interface {name}: {_reason(error)}") from error
    return was_missing or bool(missing)


def remove(name: str) -> None:
    """Removes the link with its addresses; a missing link is ignored. Raises ApplyError."""
    try:
        with _kernel() as kernel:
            for index in kernel.link_lookup(ifname=name):
                kernel.link("del", index=index)
    except (NetlinkError, OSError) as error:
        raise ApplyError(("netlink",), f"interface {name}: {_reason(error)}") from error


def _kernel() -> Any:
    make: Any = IPRoute
    return make()


def _link(kernel: Any, name: str) -> tuple[int, bool]:
    """The link's index, and whether it was made."""
    found = kernel.link_lookup(ifname=name)
    if was_missing := not found:
        _add(kernel, name)
        found = kernel.link_lookup(ifname=name)
    if not found:
        raise OSError(errno.ENODEV, "it was removed meanwhile")
    kernel.link("set", index=found[0], state="up")
    return found[0], was_missing


def _add(kernel: Any, name: str) -> None:
    for kind in KINDS:
        try:
            kernel.link("add", ifname=name, kind=kind)
        except NetlinkError as error:
            if error.code != errno.EOPNOTSUPP or kind == KINDS[-1]:
                raise
        else:
            return


def _reason(error: NetlinkError | OSError) -> str:
    number = error.code if isinstance(error, NetlinkError) else error.errno
    if number == errno.EPERM:
        return "not permitted; requires the capability CAP_NET_ADMIN"
    return os.strerror(number) if number else str(error)
