"""`forward` and `loop` of a running server: names of a cluster and of others, with NSD and Unbound as upstreams."""

from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from decoded_message import Decoded, decode
from dns_live import api_of, dns_server, page
from fake_api import Cluster, meta, service, until
from fake_api_certs import authority, issue
from fake_upstream import answers_at, query_of, upstream_of
from real_servers import free_ports, running

from kdns.cluster.source import Source
from kdns.dnsserver.io.server import DnsServer
from kdns.net import HostPort
from kdns.upstream.upstream import Transport, UpstreamSpec

COREFILE = """\
.:{port} {{
    bind 127.0.0.1
    errors
    prometheus 127.0.0.1:0
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    {directives}
    loop
    loadbalance
}}
"""
"""kubeadm's, with other addresses and without `cache`, which would hide upstreams."""
EXTERNAL_NAME = "ext.shop.svc.cluster.local"
CLUSTER_NAME = "web.shop.svc.cluster.local"


@asynccontextmanager
async def served(directives: str, port: int = 0) -> AsyncIterator[DnsServer]:
    cluster = Cluster()
    cluster.put("namespaces", meta("shop"))
    cluster.put("services", service("web", "10.96.0.1", "shop"))
    external = meta("ext", "shop") | {"spec": {"type": "ExternalName", "externalName": "ns.example.org"}}
    cluster.put("services", external)
    corefile = COREFILE.format(directives=directives, port=port)
    async with api_of(cluster) as api, dns_server(corefile, default_source=Source(endpoint=api.url)) as server:
        await until(lambda: server.is_synced)
        yield server


async def ask(
    server: DnsServer, name: str, qtype: str = "A", transport: Transport = "udp", payload_bytes: int = 1232
) -> Decoded:
    """The server's answer, asked for as an upstream would be."""
    spec = UpstreamSpec(HostPort(*server.addresses[0][:2]))
    async with upstream_of(spec) as upstream:
        query = query_of(name, qtype=qtype, payload_bytes=payload_bytes)
        return decode(await upstream.exchange(query, transport, 20.0))


def addresses(answered: Decoded) -> list[object]:
    return [rdata for rrset in answered.answer if rrset.rtype == 1 for rdata in rrset.rdata]


@pytest.fixture
def upstreams(tmp_path: Path) -> Iterator[dict[str, dict[str, int]]]:
    """The ports of an NSD and an Unbound, whose certificate is for 127.0.0.1."""
    ca = authority("ca")
    (tmp_path / "ca.pem").write_bytes(ca.pem)
    with ExitStack() as stack:
        ports = {}
        for name in ("nsd", "unbound"):
            folder = tmp_path / name
            folder.mkdir()
            issue(ca, "server", folder)
            ports[name] = stack.enter_context(running(name, folder))
        yield ports


async def test_names_of_the_cluster_and_of_others(upstreams: dict[str, dict[str, int]]) -> None:
    port = upstreams["unbound"]["port"]
    await answers_at(port)
    async with served(f"bufsize 4096\nforward . 127.0.0.1:{port}") as server:
        for transport in ("udp", "tcp"):
            assert addresses(await ask(server, CLUSTER_NAME, transport=transport)) == [bytes((10, 96, 0, 1))]
            assert addresses(await ask(server, "ns.example.org", transport=transport)) == [bytes((192, 0, 2, 1))]
            assert (await ask(server, "no.example.org", transport=transport)).rcode == "NXDOMAIN"
            chased = await ask(server, EXTERNAL_NAME, transport=transport)
            assert [rrset.rtype for rrset in chased.answer] == [5, 1]
            assert addresses(chased) == [bytes((192, 0, 2, 1))]
        large = await ask(server, "large.example.org", "TXT", payload_bytes=4096)
        assert "tc" not in large.flags, "what Unbound truncates over UDP comes over TCP"
        assert len(large.answer) == 1
        small = await ask(server, "large.example.org", "TXT", payload_bytes=1232)
        assert "tc" in small.flags
        _, metrics = await page(server, "/metrics")
        labels = f'proxy_name="forward",rcode="NXDOMAIN",to="127.0.0.1:{port}"'
        assert f"coredns_proxy_request_duration_seconds_count{{{labels}}} 2.0" in metrics


async def test_tls_with_the_right_name_and_with_a_wrong_one(
    upstreams: dict[str, dict[str, int]], tmp_path: Path
) -> None:
    await answers_at(upstreams["unbound"]["port"])
    for scheme, port in (("tls", "tls_port"), ("https", "https_port")):
        target = f"{scheme}://127.0.0.1:{upstreams['unbound'][port]}"
        for options, rcode in (("", "NOERROR"), ("tls_servername dns.example", "SERVFAIL")):
            stanza = f"forward . {target} {{\ntls {tmp_path}/ca.pem\n{options}\n}}"
            async with served(stanza) as server:
                assert (await ask(server, "ns.example.org")).rcode == rcode
                assert addresses(await ask(server, CLUSTER_NAME)) == [bytes((10, 96, 0, 1))]


async def test_a_circle_ends_and_names_of_the_cluster_go_on(logs: list[MutableMapping[str, Any]]) -> None:
    port = next(free_ports())
    async with served(f"forward . 127.0.0.1:{port}", port) as server:
        await until(lambda: any(line["event"] == "forwarding loop detected" for line in logs))
        assert (await ask(server, "www.example.com")).rcode == "SERVFAIL"
        assert addresses(await ask(server, CLUSTER_NAME)) == [bytes((10, 96, 0, 1))]
        _, metrics = await page(server, "/metrics")
        assert f'kdns_loop_upstreams{{to="127.0.0.1:{port}"}} 1.0' in metrics
