"""Exchanges with Knot DNS, NSD and Unbound from Debian, over every transport that they speak."""

import asyncio
from pathlib import Path

import pytest
from dns_client import answers, rcode
from fake_api_certs import authority, issue
from fake_upstream import answers_at, query_of, trusting, upstream_of
from real_servers import PORTS, SERVERS, running

from kdns.dns.query import Query
from kdns.net import HostPort
from kdns.upstream.message import response_to
from kdns.upstream.upstream import Transport, Upstream, UpstreamSpec, UpstreamUnreachableError

TRANSPORTS: tuple[Transport, ...] = ("udp", "tcp")


async def response_of(upstream: Upstream, query: Query, transport: Transport) -> bytes:
    """As a coroutine, for asyncio.gather: what `exchange` returns may be no Future."""
    return response_to(query, await upstream.exchange(query, transport, 10.0))


@pytest.mark.parametrize("name", SERVERS)
async def test_every_transport(tmp_path: Path, name: str) -> None:
    ca = authority("ca")
    issue(ca, "server", tmp_path)
    tls = trusting(ca, tmp_path)
    with running(name, tmp_path) as ports:
        specs = [UpstreamSpec(HostPort("127.0.0.1", ports[PORTS[scheme]]), scheme, tls) for scheme in SERVERS[name][2]]
        for spec in specs:
            await answers_at(spec)
            async with upstream_of(spec) as upstream:
                for transport in TRANSPORTS:
                    asked = [
                        response_of(upstream, query_of(host, number=number, payload_bytes=1232), transport)
                        for number in range(50)
                        for host in ("NS.example.org", f"no{number}.example.org")
                    ]
                    for number, response in enumerate(await asyncio.gather(*asked)):
                        assert response[:2] == (number // 2).to_bytes(2, "big")
                        assert rcode(response) == ("NXDOMAIN" if number % 2 else "NOERROR")
                        assert answers(response) == ([] if number % 2 else ["192.0.2.1"])
                large = query_of("large.example.org", qtype="TXT", payload_bytes=1232)
                flags = [(await upstream.exchange(large, transport, 10.0))[2] & 2 for transport in TRANSPORTS]
                assert flags == ([2, 0] if spec.scheme == "dns" else [0, 0]), "TC over UDP"
                assert upstream.udp.keeps_case
                assert not upstream.udp.counts.ignored
    async with upstream_of(specs[0]) as upstream:
        for transport in TRANSPORTS:
            with pytest.raises(UpstreamUnreachableError, match="connection refused"):
                await upstream.exchange(query_of(), transport, 10.0)
