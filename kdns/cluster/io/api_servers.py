"""The addresses of the API server in the client's URL."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from kdns import logs
from kdns.cluster.io.kubeconfig import kubeconfig
from kdns.cluster.source import Source
from kdns.errors import KubeconfigError
from kdns.net import Address, join_host_port, parse_unmapped_address
from kdns.runtime.os_errors import os_reason

log = logs.get(__name__)

SocketAddresses: TypeAlias = tuple[tuple[Address, int], ...]

RESOLVE_S: Final = 5.0
"""The resolver's timeout: the dataplane's start waits for it."""
REFRESH_S: Final = 60.0


async def api_servers(source: Source) -> SocketAddresses:
    """() if the name cannot be resolved; raises KubeconfigError."""
    parts = urlsplit(_url(source))
    host, port = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
    if not host:
        return ()  # the requests report it
    try:
        async with asyncio.timeout(RESOLVE_S):
            rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        reason = f"no answer within {RESOLVE_S:g} s" if isinstance(error, TimeoutError) else os_reason(error)
        log.info("API server not resolved", host=host, reason=reason)
        return ()
    addresses = dict.fromkeys(parse_unmapped_address(str(row[4][0])) for row in rows)
    return tuple((address, port) for address in addresses if address)


async def watch_api_servers(source: Source, changed: Callable[[SocketAddresses], None]) -> None:
    """Reports the addresses every REFRESH_S until cancelled, unless the name cannot be resolved."""
    while True:
        await asyncio.sleep(REFRESH_S)
        try:
            addresses = await api_servers(source)
        except KubeconfigError:
            continue  # the requests report it
        if addresses:
            changed(addresses)


def _url(source: Source) -> str:
    """The server's URL, in a Pod from its environment."""
    if source.kubeconfig:
        return source.server or kubeconfig(source.kubeconfig, source.context)[1]
    if source.endpoint:
        return source.endpoint
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://{join_host_port(host, int(port))}"
