"""The sockets of this network namespace, and the processes that hold them (/proc, proc(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_WAITING: Final[dict[str, str]] = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}
"""The state of a socket that waits for anybody: it listens, or is not connected (net/tcp_states.h)."""
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")


class BoundSocket(NamedTuple):
    """A socket that waits for anybody: the number of its inode, its port and the id of its user."""

    inode: str
    port: int
    uid: int


def bound_sockets(*tables: str) -> Iterator[BoundSocket]:
    """From these tables (tcp, tcp6, udp, udp6), of every PID namespace."""
    for name in tables:
        with suppress(OSError), (_PROC / "self/net" / name).open(encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if fields[3:4] == [_WAITING[name]]:
                    yield BoundSocket(fields[9], int(fields[1].rpartition(":")[2], 16), int(fields[7]))


def socket_inodes(process: str = "self") -> Iterator[str]:
    """Raises OSError for a process that may not be looked at."""
    for entry in (_PROC / process / "fd").iterdir():
        with suppress(OSError):
            if match := _SOCKET.fullmatch(str(entry.readlink())):
                yield match[1]


def port_holder(port: int) -> str:
    """Such as "dnsmasq (process 7)"; "" if it is nobody that this process may look at."""
    inodes = {bound.inode for bound in bound_sockets(*_WAITING) if bound.port == port}
    for folder in _PROC.iterdir() if inodes else ():
        with suppress(OSError):
            if folder.name.isdecimal() and not inodes.isdisjoint(socket_inodes(folder.name)):
                name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
                return f"{name} (process {folder.name})"
    return ""
