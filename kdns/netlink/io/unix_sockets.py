"""Finds the owner of a Unix socket of this network namespace, without connecting to it (linux/unix_diag.h)."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Final

from kdns.netlink import uapi
from kdns.netlink.io.requests import Requests
from kdns.netlink.protocol import attributes, integer_of

_REQUEST: Final = struct.Struct("=BBHIII8s")  # struct unix_diag_req
_RESPONSE_BYTES: Final = 16  # struct unix_diag_msg
_ALL_STATES: Final = 0xFFFFFFFF


def user_of(name: str) -> int | None:
    """The user who created the stream socket of this name; None if the kernel is too old (before 5.3)."""

    def decode(body: bytes) -> int | None:
        row = attributes(body, _RESPONSE_BYTES)
        is_named = body[1] == socket.SOCK_STREAM and row.get(uapi.UNIX_DIAG_NAME) == name.encode()
        return integer_of(row[uapi.UNIX_DIAG_UID]) if is_named and uapi.UNIX_DIAG_UID in row else None

    shown = uapi.UDIAG_SHOW_NAME | uapi.UDIAG_SHOW_UID
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, shown, b"")
    with suppress(OSError), Requests(uapi.NETLINK_SOCK_DIAG) as kernel:
        # Connections that were accepted have their listener's name, and are of its user.
        return next(iter(kernel.dump(uapi.SOCK_DIAG_BY_FAMILY, request, decode)), None)
    return None
