"""Every row of tests/golden/records asked of a live server, over UDP and TCP, that follows a fake API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from decoded_message import decode
from dns_client import Tcp, Udp, framed
from fake_api import Cluster, FakeApi, RefusedError, until
from records_table import OWN, Case, Json, cases

from kdns.cluster.source import Source
from kdns.dns.message import query
from kdns.dnsserver.io.server import DnsServer

PLURALS = {
    "Service": "services",
    "EndpointSlice": "endpointslices",
    "Pod": "pods",
    "Namespace": "namespaces",
    "ServiceImport": "serviceimports",
}


@asynccontextmanager
async def served(case: Case) -> AsyncIterator[tuple[DnsServer, FakeApi]]:
    api = FakeApi(Cluster())
    for obj in case.selected():
        api.cluster.put(PLURALS[obj["kind"]], {key: value for key, value in obj.items() if key != "kind"})
    if not case.is_synced:
        for plural in PLURALS.values():
            api.refuse_always["list", plural] = RefusedError(503, "ServiceUnavailable", "not yet")
    await api.start()
    server = DnsServer((case.config,), default_source=Source(endpoint=api.url))
    try:
        await server.start()
        await until(lambda: server.is_synced or not case.is_synced)
        yield server, api
    finally:
        await server.stop()
        await api.stop()


def quick(case: Case) -> Case:
    """The case itself; one that never gets its lists does not wait for them."""
    if case.is_synced:
        return case
    stanza = f"{case.stanza} {{\nstartup_timeout 1ms\n}}"
    return Case(case.title, stanza, case.objects, is_synced=False, rows=case.rows)


@pytest.mark.parametrize("case", [pytest.param(quick(case), id=case.title) for case in cases()])
async def test_a_live_server(case: Case) -> None:
    async with served(case) as (server, api):
        (address,) = server.addresses
        assert address[0] == OWN
        await over_udp(case, address)
        await over_tcp(case, address)
        directive = case.directive
        for _verb, plural, params in api.requests:
            selector = directive.namespace_labels if plural == "namespaces" else directive.labels
            assert params.get("labelSelector", "") == selector


async def over_udp(case: Case, address: tuple[str, int]) -> None:
    with Udp(address[1], address[0]) as udp:
        for row in (*case.rows, *case.rows):
            packet = query(row.name, row.qtype, payload_bytes=1232)
            response = await udp.ask(packet)
            assert response[:2] == packet[:2]
            assert row.difference(decode(response)) == ""


async def over_tcp(case: Case, address: tuple[str, int]) -> None:
    """All questions at once; the answers are told apart by their ids."""
    packets = [query(row.name, row.qtype, message_id=number) for number, row in enumerate(case.rows)]
    async with await Tcp.connect(address[1], address[0]) as stream:
        await stream.send(b"".join(map(framed, packets)))
        for _ in packets:
            response = await stream.receive()
            row = case.rows[int.from_bytes(response[:2], "big")]
            assert row.difference(decode(response)) == ""


@pytest.mark.parametrize("case", [pytest.param(case, id=case.title) for case in cases() if case.is_synced])
async def test_objects_that_come_and_go_while_it_is_asked(case: Case) -> None:
    """Served from an empty cluster first, so every answer has been another one before."""
    objects: list[Json] = case.selected()
    empty = Case(case.title, case.stanza, (), is_synced=True, rows=())
    async with served(empty) as (server, api):
        (followed,) = server.clusters
        with Udp(server.addresses[0][1], OWN) as udp:
            for row in case.rows:
                await udp.ask(query(row.name, row.qtype))
        for obj in objects:
            api.cluster.put(PLURALS[obj["kind"]], {key: value for key, value in obj.items() if key != "kind"})
        wanted = case.state()
        kinds = followed.kinds
        await until(lambda: all({*followed.state.objects(kind)} == {*wanted.objects(kind)} for kind in kinds))
        await over_udp(case, server.addresses[0])
