"""The sockets of relays: listeners, their options, and which families and addresses this machine has."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from kdns.errors import ListenError
from kdns.net import FAMILIES, Address, Family, is_ipv6, join_host_port
from kdns.runtime.connections import bind_failure

BACKLOG: Final = 4096
KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 300), (socket.TCP_KEEPINTVL, 60), (socket.TCP_KEEPCNT, 5))
"""A client or endpoint that is gone without a FIN is noticed after ten minutes; idle ones stay connected."""
IP_PKTINFO: Final = 8  # linux/in.h


def listener(address: str, kind: int, ports: Iterable[int]) -> socket.socket:
    """Returns a socket bound to the first of the ports that is free, and listening.

    ListenError where none can be bound.
    """
    family = address_family(address)
    port, reason = 0, "no port is left"
    for port in ports:
        with ExitStack() as on_failure:
            try:
                sock = on_failure.enter_context(socket.socket(family, kind))
                _set_options(sock, family, kind)
                sock.bind((address, port))
                if kind == socket.SOCK_STREAM:
                    sock.listen(BACKLOG)
            except OSError as error:
                reason = bind_failure(error)
                if isinstance(error, PermissionError):
                    break
            else:
                on_failure.pop_all()
                return sock
    raise ListenError(f"{join_host_port(address, port)}/{'tcp' if kind == socket.SOCK_STREAM else 'udp'}", reason)


def address_family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if is_ipv6(address) else socket.AF_INET


def set_tcp_options(sock: socket.socket) -> None:
    """Sends small segments at once, and notice when the peer is gone without a FIN."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def supported_families() -> tuple[Family, ...]:
    """Returns the families that this machine has sockets of: both, unless it was booted without IPv6."""
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    except OSError:
        return FAMILIES[:1]
    return FAMILIES


def is_own_address(address: Address) -> bool:
    try:
        listener(str(address), socket.SOCK_DGRAM, (0,)).close()
    except ListenError:
        return False
    return True


def _set_options(sock: socket.socket, family: int, kind: int) -> None:
    sock.setblocking(False)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    if kind == socket.SOCK_STREAM:  # accepted sockets inherit these
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        set_tcp_options(sock)
