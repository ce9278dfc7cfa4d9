"""The relays under measurement that are no programs of their own: `python _relays.py NAME PORT ENDPOINT_PORT`.

Each prints "ready", and then serves until it is ended.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kdns import logs
from kdns.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import State
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.planner import plan
from kdns.proxy.userspace.io.proxier import UserspaceProxier
from kdns.proxy.userspace.mode import USERSPACE

VIP: Final = "127.96.0.1"
PIECE_BYTES: Final = 256 * 1024


async def kdns(port: int, endpoint_port: int) -> None:
    """Mode userspace with one Service."""
    state = State()
    state.upsert(Service(ServiceMeta("web", "shop"), ServiceSpec(cluster_ip=VIP, ports=(ServicePort(port, "p"),))))
    state.upsert(
        EndpointSlice(
            SliceMeta("web", "shop", SliceLabels("web")),
            endpoints=(Endpoint(("127.0.0.1",)),),
            ports=(EndpointPort("p", endpoint_port),),
        )
    )
    await UserspaceProxier().sync_full(plan(state, NodeView(), ProxyConfig(USERSPACE)))


async def plain(port: int, endpoint_port: int) -> None:
    """What one would write first: two loops of recv and send on non-blocking sockets."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def pump(source: socket.socket, target: socket.socket) -> None:
        buffer = memoryview(bytearray(PIECE_BYTES))
        while size := await loop.sock_recv_into(source, buffer):
            await loop.sock_sendall(target, buffer[:size])
        target.shutdown(socket.SHUT_WR)

    async def serve(client: socket.socket) -> None:
        with client, socket.socket() as endpoint:
            endpoint.setblocking(False)
            for each in (client, endpoint):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(endpoint, ("127.0.0.1", endpoint_port))
            await asyncio.gather(pump(client, endpoint), pump(endpoint, client))

    async def accept(listener: socket.socket) -> None:
        while True:
            client, _ = await loop.sock_accept(listener)
            task = loop.create_task(serve(client))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    listener = socket.create_server((VIP, port), backlog=4096)
    listener.setblocking(False)
    tasks.add(loop.create_task(accept(listener)))


RELAYS: Final[Mapping[str, Callable[[int, int], Awaitable[None]]]] = {"kdns": kdns, "asyncio": plain}


async def main(name: str, port: int, endpoint_port: int) -> None:
    """Serve for ever."""
    await RELAYS[name](port, endpoint_port)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    logs.configure()
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:4])))
