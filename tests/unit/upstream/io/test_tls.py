"""Exchanges over TLS with servers on loopback: whose certificate is taken, and what is said of others."""

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from fake_api_certs import Authority, authority, issue
from fake_upstream import fake_server, query_of, respond_to, server_tls, trusting, upstream_of

from kdns.errors import InputError
from kdns.net import HostPort
from kdns.upstream.io import tls as tls_module
from kdns.upstream.io.endpoint import Endpoint
from kdns.upstream.io.tls import Tls
from kdns.upstream.upstream import TlsSpec, UpstreamError, UpstreamSpec, UpstreamUnreachableError

QUERY = query_of("www.example.com", payload_bytes=1232)
NAME = "dns.example.org"


@pytest.fixture
def ca() -> Authority:
    return authority("ca")


@pytest.mark.parametrize(
    ("hosts", "server_name", "end_h", "reason"),
    [
        ([NAME], NAME, 1, ""),
        ([NAME], f"{NAME}.", 1, ""),
        (["*.example.org"], NAME, 1, ""),
        (["127.0.0.1"], "", 1, ""),
        ([NAME], "other.example.org", 1, "the certificate is not for other.example.org"),
        ([NAME], "", 1, "the certificate is not for 127.0.0.1"),
        (["127.0.0.2"], "", 1, "the certificate is not for 127.0.0.1"),
        ([NAME], NAME, -1, "the certificate has expired"),
    ],
)
async def test_certificates(
    tmp_path: Path, ca: Authority, hosts: list[str], server_name: str, end_h: float, reason: str
) -> None:
    async with fake_server(tls=server_tls(ca, tmp_path, hosts, end_h)) as server:
        spec = replace(server.spec, scheme="tls", tls=trusting(ca, tmp_path, server_name=server_name))
        async with upstream_of(spec) as upstream:
            if not reason:
                for transport in ("udp", "tcp"):
                    assert await upstream.exchange(QUERY, transport, 5.0) == respond_to(QUERY)
                assert len(server.connections) == 1
                return
            with pytest.raises(UpstreamUnreachableError) as error:
                await upstream.exchange(QUERY, "udp", 5.0)
            assert str(error.value) == reason
        assert server.streamed == []


@pytest.mark.parametrize("is_named", [False, True])
async def test_an_authority_that_nobody_trusts(tmp_path: Path, ca: Authority, is_named: bool) -> None:
    tls = trusting(authority("another"), tmp_path) if is_named else TlsSpec()
    async with (
        fake_server(tls=server_tls(ca, tmp_path, ["127.0.0.1"])) as server,
        upstream_of(replace(server.spec, scheme="tls", tls=tls)) as upstream,
    ):
        with pytest.raises(UpstreamUnreachableError, match="the certificate is not trusted: "):
            await upstream.exchange(QUERY, "tcp", 5.0)


async def test_a_server_without_tls(tmp_path: Path, ca: Authority) -> None:
    tls = trusting(ca, tmp_path)
    async with fake_server() as server, upstream_of(replace(server.spec, scheme="tls", tls=tls)) as upstream:
        with pytest.raises(UpstreamError, match=r"closed|TLS failed|no connection|reset"):
            await upstream.exchange(QUERY, "tcp", 1.0)


async def test_the_clients_own_certificate(tmp_path: Path, ca: Authority) -> None:
    server_context = server_tls(ca, tmp_path, ["127.0.0.1"])
    server_context.verify_mode = ssl.CERT_REQUIRED
    server_context.load_verify_locations(cadata=ca.pem.decode())
    certificate, key = issue(ca, "client", tmp_path)
    async with fake_server(tls=server_context) as server:
        tls = trusting(ca, tmp_path, cert_path=str(certificate), key_path=str(key))
        async with upstream_of(replace(server.spec, scheme="tls", tls=tls)) as upstream:
            assert await upstream.exchange(QUERY, "tcp", 5.0) == respond_to(QUERY)
        async with upstream_of(replace(server.spec, scheme="tls", tls=trusting(ca, tmp_path))) as upstream:
            with pytest.raises(UpstreamError):
                await upstream.exchange(QUERY, "tcp", 5.0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ca_path": "missing.pem"}, "missing.pem: No such file or directory"),
        ({"ca_path": "empty.pem"}, "expected certificates of authorities"),
        ({"cert_path": "empty.pem", "key_path": "empty.pem"}, "not a certificate with the key"),
        ({"ca_path": "ca.pem", "cert_path": "empty.pem", "key_path": "empty.pem"}, "not a certificate with the key"),
    ],
)
def test_files_that_are_of_no_use(tmp_path: Path, ca: Authority, fields: dict[str, str], reason: str) -> None:
    (tmp_path / "empty.pem").touch()
    (tmp_path / "ca.pem").write_bytes(ca.pem)
    paths = {name: str(tmp_path / path) for name, path in fields.items()}
    with pytest.raises(InputError, match=reason):
        Tls(UpstreamSpec(HostPort("127.0.0.1", 853), "tls", TlsSpec(**paths)))


async def test_upstreams_with_the_same_files_share_a_context_until_the_files_change(
    tmp_path: Path, ca: Authority
) -> None:
    tls = trusting(ca, tmp_path)
    specs = [UpstreamSpec(HostPort(host, 853), "tls", tls) for host in ("192.0.2.1", "192.0.2.2")]
    first, second = [await Tls(spec).context() for spec in specs]
    assert first is second
    (tmp_path / "ca.pem").write_bytes(authority("another").pem)
    assert await Tls(specs[0]).context() is not first


@pytest.mark.parametrize(("host", "source"), [("dns.example", ""), ("fe80::1%nowhere0", ""), ("192.0.2.1", "::1")])
def test_addresses_of_no_use(host: str, source: str) -> None:
    with pytest.raises(InputError, match=r"address|family"):
        Endpoint(UpstreamSpec(HostPort(host, 53), source_address=source))


async def test_the_loop_goes_on_while_the_systems_roots_are_read() -> None:
    tls_module._context.cache_clear()  # noqa: SLF001 - what another test has read is there at once
    tls = Tls(UpstreamSpec(HostPort("127.0.0.1", 853), "tls"))
    task = asyncio.create_task(tls.context())
    await asyncio.sleep(0)
    assert not task.done()
    assert (await task).verify_mode is ssl.CERT_REQUIRED
