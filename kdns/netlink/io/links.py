"""Links of this machine: found, added, brought up and removed. All of it blocks, and raises OSError on refusal."""

from __future__ import annotations

import errno

from kdns.netlink.io.requests import requests
from kdns.netlink.links import Link, addition, bringing_up, deletion, link_of, question
from kdns.netlink.protocol import Change
from kdns.netlink.uapi import NETLINK_ROUTE


def find_link(name: str) -> Link | None:
    """Returns the link of this name; None if there is no such link."""
    try:
        with requests(NETLINK_ROUTE) as kernel:
            return link_of(kernel.ask(*question(name)))
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return None


def add_link(name: str, kind: str) -> None:
    """Adds a link, which is not up yet. EEXIST if there is one of this name, EOPNOTSUPP for an unknown kind."""
    _do(addition(name, kind))


def bring_link_up(index: int) -> None:
    _do(bringing_up(index))


def remove_link(index: int) -> None:
    _do(deletion(index))


def _do(change: Change) -> None:
    kind, flags, body = change
    with requests(NETLINK_ROUTE) as kernel:
        kernel.do(kind, body, flags)
