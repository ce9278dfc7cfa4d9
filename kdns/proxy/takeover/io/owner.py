"""One process at a time is the proxy of a network namespace, whatever its mode: two would undo each other's rules."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Final

from kdns import logs
from kdns.errors import KdnsError
from kdns.netlink.io.unix_sockets import user_of

NAME: Final = "\0kdns/table/kdns"
"""The name contains a table's for historical reasons: processes of all versions use the same name."""
_BACKLOG: Final = 4096
"""Each process that is refused leaves an entry in the backlog; where it is full, the owner cannot be named."""
_UCRED: Final = struct.Struct("=iII")  # struct ucred of unix(7): pid, uid, gid

log = logs.get(__name__)


def own_network() -> socket.socket:
    """Returns a socket that makes this process the owner of the rules until it is closed; KdnsError if another one is.

    It is an abstract Unix socket, which belongs to a network namespace as rules do, and is gone with its process
    however that ends. Every user may bind its name, so one that is neither root nor this process's user does not count.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(NAME)
        made.listen(_BACKLOG)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            made.close()
            raise KdnsError(f"cannot lock the network namespace: {error.strerror}") from error
        owner = _owner()
        if owner is None or owner[1] in {0, os.geteuid()}:
            made.close()
            pid = owner[0] if owner else 0
            which = f"process {pid}" if pid else "a process of another container"
            message = f"{which} serves this network namespace already; stop it first"
            raise KdnsError(message) from None
        log.warning("owner of the rules is not known: its name is taken", process=owner[0], user=owner[1])
    return made


def _owner() -> tuple[int, int] | None:
    """Process and user of the owner; None if neither it nor the kernel says.

    The process is 0 in another PID namespace, and where the owner takes no connections: a user who binds the name
    need not listen.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        if asking.connect_ex(NAME):
            user = user_of(NAME)
            return None if user is None else (0, user)
        pid, uid, _ = _UCRED.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return pid, uid
