"""How many functions of kdns a walk calls: bounds that hold on any machine, as no time does.

A walk is counted several times and the fewest calls are taken: a timer may run meanwhile, and a socket may be new.
"""

import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Self

import msgspec
from dns_client import Udp, packet
from dns_live import api_of, dns_server
from fake_api import Cluster, endpoint_slice, meta, service, until
from fake_upstream import RECORD, FakeServer, fake_server

import kdns
from kdns.cluster.objects import Endpoint
from kdns.dnsserver.io.server import DnsServer

KDNS = str(Path(kdns.__file__).parent)
RUNS = 40
"""More than there are sockets of an upstream, which are taken at random."""
COREFILE = """\
.:0 {{
    bind 127.0.0.1
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        endpoint {endpoint}
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    forward . 127.0.0.1:{port}
    cache 30
    loop
    loadbalance
}}
"""
SOURCE = ("/plugins/", "/cluster/")
MODULES = 12
"""The most modules from a packet to its answer, without those of the source that has it."""
ENDPOINTS = tuple(f"10.244.0.{number}" for number in range(1, 6))


class Calls(Counter[str]):
    """Calls of functions of kdns while it is entered, by function."""

    def __enter__(self) -> Self:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(KDNS):
            self[f"{code.co_filename.removeprefix(KDNS)} {code.co_qualname}"] += 1


def answered(query: bytes) -> list[bytes]:
    """An upstream's answer, made without a function of kdns."""
    question = query[12 : query.index(b"\0", 12) + 5]
    return [query[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + question + RECORD]


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[DnsServer, FakeServer]]:
    """A server with kubeadm's directives, that of a Service with five endpoints, and its upstream."""
    cluster = Cluster()
    cluster.put("namespaces", meta("default"))
    cluster.put("services", service("web", "None"))
    slices = endpoint_slice("web")
    slices["endpoints"] = [{"addresses": [address]} for address in ENDPOINTS]
    cluster.put("endpointslices", slices)
    async with (
        api_of(cluster) as api,
        fake_server(answered) as upstream,
        dns_server(COREFILE.format(endpoint=api.url, port=upstream.port)) as server,
    ):
        await until(lambda: server.is_synced)
        yield server, upstream


def shown(calls: Calls) -> str:
    return "\n".join(f"{number:4} {name}" for name, number in calls.most_common())


async def test_a_forwarded_question() -> None:
    """The first question of a name, which an upstream is asked, and the second, which the table answers."""
    first: list[Calls] = []
    second: list[Calls] = []
    async with serving() as (server, upstream):
        with Udp(server.addresses[0][1]) as client:
            for number in range(RUNS):
                query = packet(f"www{number}.example.com", payload_bytes=1232)
                for found in (first, second):
                    with Calls() as calls:
                        await client.ask(query)
                    found.append(calls)
        assert len(upstream.received) < 2 * RUNS, "the others were answered by the server"
    miss, hit = (min(found, key=Calls.total) for found in (first, second))
    assert miss.total() < 100, shown(miss)
    assert hit.total() < 7, shown(hit)


async def test_a_first_question_about_the_cluster() -> None:
    """The short way: the addresses of a headless Service, and a name that a search path makes."""
    found: dict[str, list[Calls]] = {
        "web.default.svc.cluster.local": [],
        "web.default.svc.cluster.local.cluster.local": [],
    }
    async with serving() as (server, _):
        with Udp(server.addresses[0][1]) as client:
            for number in range(RUNS):
                for name, walks in found.items():
                    with Calls() as calls:
                        await client.ask(packet(name, payload_bytes=512 + number))
                    walks.append(calls)
    for (name, walks), most in zip(found.items(), (64, 36), strict=True):
        shortest = min(walks, key=Calls.total)
        assert shortest.total() < most, f"{name}\n{shown(shortest)}"
        modules = {called.partition(" ")[0] for called in shortest}
        assert len([path for path in modules if not path.startswith(SOURCE)]) <= MODULES, shown(shortest)


async def test_a_changed_slice() -> None:
    """One of five endpoints gets another address: they are packed, and an answer is forgotten."""
    async with serving() as (server, _):
        (cluster,) = server.clusters
        (old,) = cluster.state.slices.values()
        found: list[Calls] = []
        with Udp(server.addresses[0][1]) as client:
            for number in range(RUNS):
                ends = tuple(Endpoint((address,)) for address in (*ENDPOINTS[:-1], f"10.244.1.{number}"))
                moved = msgspec.structs.replace(old, endpoints=ends)
                await client.ask(packet("web.default.svc.cluster.local"))
                with Calls() as calls:
                    change = cluster.state.upsert(moved)
                    assert change
                    cluster.changed([change])
                found.append(calls)
    shortest = min(found, key=Calls.total)
    assert shortest.total() < 85, shown(shortest)
