"""`kdns trace --live`: connections of a client, as the kernel tracks and counts them."""

import asyncio
import socket
from functools import partial
from ipaddress import ip_address

from dataplanes import DATAPLANE
from small_cluster import CLIENTS, ENDPOINTS, case, endpoints, service
from world import World

from kdns.net import join_host_port
from kdns.proxy.takeover.io.modes import runtime
from kdns.proxy.trace.io.follow import follow
from kdns.proxy.trace.trace import Packet, trace

OF = case("one", [service(1, endpoints(1, "p1"))], "")
VIP = "10.96.0.1"


def test_a_connection_is_followed(world: World, loop: asyncio.AbstractEventLoop) -> None:
    plan = OF.in_mode(DATAPLANE.mode).plan
    client, endpoint = CLIENTS["pod2"][0], ENDPOINTS["p1"][0]
    packet = Packet(ip_address(client), ip_address(VIP), "TCP", 80, "pods")
    said: list[str] = []

    async def followed(seconds: float) -> list[str]:
        said.clear()
        read = runtime(DATAPLANE.mode.name).connections
        await follow(packet, trace(plan, packet), seconds, said.append, partial(read, plan.ipv4) if read else None)
        return said

    async def check() -> None:
        await DATAPLANE.proxier().sync_full(plan)
        world.forget()
        assert f"  none from {client} to {VIP}:80/TCP was tracked here" in await followed(0)
        following = asyncio.create_task(followed(6.0 if DATAPLANE.mode.name == "ipvs" else 1.5))  # IPVS counts later
        await asyncio.sleep(0.3)
        with world.socket("pod2", client, socket.SOCK_STREAM) as sock:
            await loop.sock_connect(sock, (VIP, 80))
            source = join_host_port(*sock.getsockname())
            lines = await following
        (line,) = (each for each in lines if "established" in each)
        assert line.startswith(f"  {source} → {endpoint}:")
        assert "not one of" not in line
        counts = [each for each in lines if "the kernel counted" in each]
        if runtime(DATAPLANE.mode.name).connections:
            assert len(counts) == 1
            assert counts[0].endswith(", 1 of them meanwhile")
        else:
            assert not counts

    loop.run_until_complete(check())
