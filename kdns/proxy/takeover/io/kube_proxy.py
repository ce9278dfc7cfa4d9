"""Whether a kube-proxy is at work in this network namespace.

Its process is seen if it is in this PID namespace. Its pages for operators are seen in any case, also those of a
kube-proxy that is a part of another program, as in k3s. A page counts only if root listens there: any user may listen
at these ports while they are free.
"""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from kdns.runtime.sockets import bound_sockets, socket_inodes

PAGES: Final = ((10249, "/proxyMode", rb"(?:iptables|ipvs|nftables|userspace)\Z"), (10256, "/livez", rb'\{.*"healthy"'))
"""Where kube-proxy's pages are by default, and what they begin with."""
NAME: Final = "kube-proxy"
ROOT: Final = 0
TIMEOUT_S: Final = 1.0
_PROC: Final = Path("/proc")
_ANSWER_BYTES: Final = 64 * 1024

_OK: Final = re.compile(rb"HTTP/1\.[01] (?:200|503)[^\r]*\r\n(?:[^\r]+\r\n)*\r\n(?P<body>.*)\Z", re.DOTALL)


async def kube_proxy() -> str:
    """Returns the evidence of a running kube-proxy, in words; "" without evidence."""
    if pid := await asyncio.to_thread(_process):
        return f"process {pid}"
    ports = await asyncio.to_thread(_ports_of_root) - await asyncio.to_thread(own_ports)
    for port, path, body in PAGES:
        if port in ports and await _answers(port, path, body):
            return f"http://127.0.0.1:{port}{path}"
    return ""


def _process() -> int:
    """Returns the process of that name in this network namespace; 0 for none."""
    own = (_PROC / "self/ns/net").readlink()
    for folder in _PROC.iterdir():
        with suppress(OSError):  # it has ended, or is none of ours to look at
            if (
                folder.name.isdecimal()
                and (folder / "comm").read_text(encoding="ascii", errors="replace").strip() == NAME
                and (folder / "ns/net").readlink() == own
            ):
                return int(folder.name)
    return 0


def own_ports() -> set[int]:
    """Returns the TCP ports at which this process itself listens."""
    inodes = set(socket_inodes())
    return {bound_socket.port for bound_socket in bound_sockets("tcp", "tcp6") if bound_socket.inode in inodes}


def _ports_of_root() -> set[int]:
    """Returns the TCP ports at which only root listens: another user's socket could answer at 127.0.0.1."""
    users: dict[int, set[int]] = {}
    for bound_socket in bound_sockets("tcp", "tcp6"):
        users.setdefault(bound_socket.port, set()).add(bound_socket.uid)
    return {port for port, uids in users.items() if uids == {ROOT}}


async def _answers(port: int, path: str, body: bytes) -> bool:
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, family=socket.AF_INET)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
                answer = b""
                while len(answer) < _ANSWER_BYTES and (part := await reader.read(_ANSWER_BYTES)):
                    answer += part
            finally:
                writer.close()
        match = _OK.match(answer)
        return match is not None and re.match(body, match["body"], re.DOTALL) is not None
    return False
