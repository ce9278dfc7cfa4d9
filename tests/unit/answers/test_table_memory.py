"""The answer table's memory is what it says, whatever is asked."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from cluster_objects import endpoint_slice, service, state_of
from dns_chain import cluster_server

from kdns.answers.order import Order
from kdns.dns.message import query
from kdns.dns.types import AAAA, A
from kdns.dnsserver.blocks import Server
from kdns.plugins.sources.kubernetes.options import Options

SERVICES = 1000


def server() -> Server:
    state = state_of()
    for number in range(SERVICES):
        name, addresses = f"set-{number}", (f"10.{number // 250}.{number % 250}.{index}" for index in range(5))
        state.upsert(service(name, "None"))
        state.upsert(endpoint_slice(name, name, *addresses))
    return cluster_server(state, Options(), order=Order(rotate=True))[0]


SHAPES: dict[str, Callable[[], list[bytes]]] = {
    "random names of a namespace": lambda: [query(f"{n:016x}.shop.svc.cluster.local.", A) for n in range(3000)],
    "random names elsewhere": lambda: [query(f"{n:016x}.cluster.local.", A) for n in range(3000)],
    "long names": lambda: [query(f"{n:050x}.{n:050x}.svc.cluster.local.", A) for n in range(3000)],
    "addresses": lambda: [query(f"set-{n}.shop.svc.cluster.local.", A, payload_bytes=1232) for n in range(SERVICES)],
    "a search path": lambda: [
        query(f"set-{n}.shop.svc.cluster.local.shop.svc.cluster.local.", qtype)
        for n in range(SERVICES)
        for qtype in (A, AAAA)
    ],
    "one name in many packets": lambda: [
        query("set-1.shop.svc.cluster.local.", A, payload_bytes=600 + n) for n in range(3000)
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_weights_are_true(shape: str) -> None:
    asked, packets = server(), SHAPES[shape]()
    partition, generations = asked.table.partition("udp", 4), asked.table.generations
    gc.collect()
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        for packet in packets:
            asked.respond(packet, partition)
        gc.collect()
        taken_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
    assert len(asked.table) == len(packets)
    assert generations.size_bytes == pytest.approx(taken_bytes, rel=0.2)
