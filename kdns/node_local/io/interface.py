"""The interface of a node-local DNS cache: a link without cables that has the addresses that the node's Pods ask."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from kdns.errors import ApplyError
from kdns.netlink.addresses import Link
from kdns.netlink.io.addresses import (
    add_link,
    bring_link_up,
    change_link_addresses,
    find_link,
    link_addresses,
    remove_link,
)

KINDS = ("dummy", "bridge")
"""Kinds of links by preference. A bridge without ports has the same effect if the kernel has no dummy links."""


def establish(name: str, addresses: Iterable[str]) -> bool:
    """Whether anything was missing. Raises ApplyError."""
    try:
        link, was_missing = _link(name)
        held = link_addresses(link.index)
        missing = [address for address in addresses if address not in held]
        refused = change_link_addresses(link.index, missing, ())
    except OSError as error:
        raise ApplyError(("netlink",), f"interface {name}: {_reason(error)}") from error
    for address, number in refused.items():
        raise ApplyError(("netlink",), f"interface {name}, address {address}: {os.strerror(number)}")
    return was_missing or bool(missing)


def remove(name: str) -> None:
    """A missing link is ignored. Raises ApplyError."""
    try:
        if link := find_link(name):
            remove_link(link.index)
    except OSError as error:
        raise ApplyError(("netlink",), f"interface {name}: {_reason(error)}") from error


def _link(name: str) -> tuple[Link, bool]:
    """The link, which is up then, and whether it was made."""
    link = find_link(name)
    if was_missing := link is None:
        _add(name)
        link = find_link(name)
    if link is None:
        raise OSError(errno.ENODEV, "it was removed meanwhile")
    bring_link_up(link.index)
    return link, was_missing


def _add(name: str) -> None:
    for kind in KINDS:
        try:
            add_link(name, kind)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP or kind == KINDS[-1]:
                raise
        else:
            return


def _reason(error: OSError) -> str:
    if error.errno == errno.EPERM:
        return "not permitted; requires the capability CAP_NET_ADMIN"
    return error.strerror or str(error)
