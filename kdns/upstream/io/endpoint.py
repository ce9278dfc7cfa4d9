"""The address of an upstream, and the sockets that are connected to it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, TypeAlias

from kdns.errors import InputError
from kdns.upstream.upstream import UpstreamSpec

SocketAddress: TypeAlias = Any
"""The address form of Python's sockets: host and port, with flow and zone for IPv6."""

_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class Endpoint:
    """The address of an upstream, and the source address, if any; InputError for an invalid one."""

    def __init__(self, spec: UpstreamSpec) -> None:
        self._family, self._address = _resolved(spec.address.host, spec.address.port)
        self._source: SocketAddress = None
        if spec.source_address:
            family, self._source = _resolved(spec.source_address, 0)
            if family is not self._family:
                raise InputError(f"{spec.source_address} and {spec.address.host} are not of one family")

    def udp(self) -> socket.socket:
        sock = self._bound(socket.SOCK_DGRAM)
        try:
            sock.connect(self._address)
        except OSError:
            sock.close()
            raise
        return sock

    async def connected(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        sock = self._bound(socket.SOCK_STREAM)
        try:
            await loop.sock_connect(sock, self._address)
        except BaseException:
            sock.close()
            raise
        return sock

    def _bound(self, kind: socket.SocketKind) -> socket.socket:
        sock = socket.socket(self._family, kind)
        try:
            sock.setblocking(False)
            if self._source is not None:
                sock.bind(self._source)
        except OSError:
            sock.close()
            raise
        return sock


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, SocketAddress]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=_NUMERIC)[0]
    except OSError as error:
        raise InputError(f"{host} is not an address of this machine's networks: {error.strerror}") from error
    return family, address
