"""The node's addresses that mean something here only: what the kernel does with them, and whether the trace says so."""

import asyncio
import socket
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Final

import pytest
from small_cluster import CONFIG, ENDPOINTS, NODE_VIEW, endpoints, service, state
from world import World

from kdns.netlink.io.addresses import node_addresses
from kdns.proxy.nftables.io.proxier import NftablesProxier
from kdns.proxy.plan.config import NodeView
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import plan
from kdns.proxy.trace.trace import Fate, Packet, trace

NODE_PORTS: Final = {
    "everywhere": replace(CONFIG, node_port_addresses=()),
    "links": replace(CONFIG, node_port_addresses=(ip_network("169.254.0.0/16"), ip_network("fe80::/10"))),
    "primary": CONFIG,
}
INGRESS: Final = ("192.0.2.9", "127.0.0.1", "2001:db8:2::9", "::1")

ROWS: Final = """
# node ports   endpoint  space    from             to           port   wanted
  everywhere   r1        outside  192.0.2.100      169.254.4.1  30001  r1
  everywhere   r1        outside  2001:db8:2::100  fe80::4      30001  r1
  everywhere   r1        outside  fe80::4:2        fe80::4      30001  dropped
  everywhere   h1        outside  fe80::4:2        fe80::4      30001  h1
  links        r1        outside  192.0.2.100      169.254.4.1  30001  r1
  links        r1        outside  2001:db8:2::100  fe80::4      30001  r1
  links        r1        outside  192.0.2.100      192.0.2.1    30001  nobody
  primary      r1        outside  192.0.2.100      169.254.4.1  30001  nobody
  primary      r1        outside  2001:db8:2::100  fe80::4      30001  nobody

  everywhere   r1        node     127.0.0.1        10.96.0.1    80     dropped
  everywhere   h1        node     127.0.0.1        10.96.0.1    80     dropped
  everywhere   r1        node     127.0.0.1        192.0.2.9    30001  dropped
  everywhere   h1        node     127.0.0.1        192.0.2.9    30001  h1
  everywhere   r1        node     ::1              fd00:96::1   80     dropped
  everywhere   h1        node     ::1              fd00:96::1   80     h1

  primary      r1        outside  192.0.2.100      192.0.2.9    80     r1
  primary      r1        node     192.0.2.1        127.0.0.1    80     nobody
  primary      r1        node     127.0.0.1        127.0.0.1    80     nobody
  primary      r1        node     ::1              ::1          80     nobody
"""
"""The last are load balancer IPs."""
FATES: Final = {"dropped": Fate.DROPPED, "nobody": Fate.UNTOUCHED}
LONG_S, SHORT_S, TRIES = 5.0, 0.5, 3
CASES: Final = [line.split() for line in ROWS.splitlines() if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("row", CASES, ids=" ".join)
def test_kernel_and_trace(world: World, loop: asyncio.AbstractEventLoop, row: list[str]) -> None:
    where, end, space, source, target, port, wanted = row
    addresses = loop.run_until_complete(node_addresses())
    assert ip_address("169.254.4.1") in addresses
    assert ip_address("fe80::4") not in addresses
    made = made_plan(where, end, replace(NODE_VIEW, addresses=addresses))
    told = trace(made, Packet(ip_address(source), ip_address(target), "TCP", int(port)))
    assert told.fate is FATES.get(wanted, Fate.FORWARDED), told
    loop.run_until_complete(NftablesProxier().sync_full(made))
    world.forget()
    which = 1 if ":" in source else 0
    backend = ENDPOINTS[wanted][which] if wanted in ENDPOINTS else ""
    for left in reversed(range(TRIES if backend else 1)):  # a packet may be lost on a busy machine
        found = loop.run_until_complete(answer(world, space, source, target, int(port), bool(backend)))
        assert found == backend or left
        if found == backend:
            break


def made_plan(where: str, end: str, view: NodeView) -> Plan:
    objects = service(1, endpoints(1, end), ingress=[{"ip": each} for each in INGRESS])
    return plan(state(objects), view, NODE_PORTS[where])


async def answer(world: World, space: str, source: str, target: str, port: int, is_expected: bool) -> str:
    def client() -> tuple[socket.socket, object]:
        """A socket, and where it connects to: a link-local address is one of a link."""
        family = socket.AF_INET6 if ":" in source else socket.AF_INET
        own, other = (
            socket.getaddrinfo(f"{each}%eth0" if each.startswith("fe80") else each, number, family, socket.SOCK_STREAM)
            for each, number in ((source, 0), (target, port))
        )
        made = socket.socket(family)
        made.setblocking(False)
        made.bind(own[0][4])
        return made, other[0][4]

    connection, to = client() if space == "node" else world.inside(space, client)
    loop = asyncio.get_running_loop()
    with connection:
        try:
            async with asyncio.timeout(LONG_S if is_expected else SHORT_S):
                await loop.sock_connect(connection, to)  # type: ignore[arg-type]
                await loop.sock_sendall(connection, b"hello")
                return (await loop.sock_recv(connection, 200)).decode().split()[0]
        except (OSError, TimeoutError):
            return ""
