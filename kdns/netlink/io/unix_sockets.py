"""Finds the owner of a Unix socket of this network namespace, without connecting to it (linux/unix_diag.h)."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Final

from kdns.netlink.io.requests import requests
from kdns.netlink.protocol import attributes, integer_of
from kdns.netlink.uapi import (
    NETLINK_SOCK_DIAG,
    SOCK_DIAG_BY_FAMILY,
    UDIAG_SHOW_NAME,
    UDIAG_SHOW_UID,
    UNIX_DIAG_NAME,
    UNIX_DIAG_UID,
)

_REQUEST: Final = struct.Struct("=BBHIII8s")  # struct unix_diag_req
_RESPONSE_BYTES: Final = 16  # struct unix_diag_msg
_ALL_STATES: Final = 0xFFFFFFFF


def user_of(name: str) -> int | None:
    """Returns the user who created the stream socket of this name; None if the kernel is too old (before 5.3)."""
    found: list[int] = []

    def receive(body: bytes) -> None:
        row = attributes(body, _RESPONSE_BYTES)
        is_stream = body[1] == socket.SOCK_STREAM
        if is_stream and row.get(UNIX_DIAG_NAME) == name.encode() and (user := row.get(UNIX_DIAG_UID)):
            found.append(integer_of(user))

    shown = UDIAG_SHOW_NAME | UDIAG_SHOW_UID
    with suppress(OSError), requests(NETLINK_SOCK_DIAG) as kernel:
        kernel.dump(SOCK_DIAG_BY_FAMILY, _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, shown, b""), receive)
    # Connections that were accepted have their listener's name, and are of its user.
    return found[0] if found else None
