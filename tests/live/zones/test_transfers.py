"""Zones between kdns and others: dig, and knot as a secondary and as a primary, signed and not."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from _process import free_port
from dns_live import dns_server

from kdns.dnsserver.io.server import DnsServer

SECRET = "NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk="  # noqa: S105 - of this test only
KEY = f"hmac-sha256:key.example.:{SECRET}"
HOSTS = 2000
ZONE = """$TTL 60
@ IN SOA ns admin {serial} 3600 600 86400 60
@ IN NS ns
ns IN A 127.0.0.1
{more}
$GENERATE 1-{hosts} h$ A 10.0.0.1
"""


def zone(serial: int, more: str = "") -> str:
    return ZONE.format(serial=serial, more=more, hosts=HOSTS)


@asynccontextmanager
async def serving(block: str, port: int = 0) -> AsyncIterator[tuple[DnsServer, int]]:
    async with dns_server(f"example.:{port} {{\nbind 127.0.0.1\n{block}\n}}") as server:
        yield server, server.addresses[0][1]


async def dig(port: int, *args: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "dig", "@127.0.0.1", "-p", str(port), "+time=5", "+tries=1", *args, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode()


@asynccontextmanager
async def knot(folder: Path, port: int, zone_lines: str, remote_port: int) -> AsyncIterator[None]:
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240 - of this test
    config = folder / "knot.conf"
    config.write_text(
        f"""server:
  rundir: {folder}
  listen: 127.0.0.1@{port}
database:
  storage: {folder}
key:
- id: key.example.
  algorithm: hmac-sha256
  secret: {SECRET}
remote:
- id: kdns
  address: 127.0.0.1@{remote_port}
  key: key.example.
acl:
- id: peers
  address: 127.0.0.1
  key: key.example.
  action: transfer
- id: notifiers
  address: 127.0.0.1
  action: notify
zone:
- domain: example.
  storage: {folder}
  file: example.zone
  acl: [peers, notifiers]
{zone_lines}
"""
    )
    process = await asyncio.create_subprocess_exec(
        shutil.which("knotd", path="/usr/sbin:/usr/bin") or "knotd",
        "-c",
        str(config),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def has_serial(port: int, serial: int) -> None:
    """Wait until a server has this version of the zone."""
    deadline_s = asyncio.get_running_loop().time() + 20
    while f" {serial} 3600" not in await dig(port, "example.", "SOA", "+short"):
        assert asyncio.get_running_loop().time() < deadline_s, f"no serial {serial}"
        await asyncio.sleep(0.1)


async def test_dig_gets_a_zone_and_what_changed(tmp_path: Path) -> None:
    path = tmp_path / "db"
    path.write_text(zone(1))
    block = f"file {path} {{\nreload 50ms\n}}\ntransfer {{\nto *\n}}\ntsig {{\nsecret key.example. {SECRET}\n}}"
    async with serving(block) as (_, port):
        lines = [line for line in (await dig(port, "example.", "AXFR", "+noall", "+answer")).splitlines() if line]
        assert len(lines) == HOSTS + 4
        assert lines[0] == lines[-1]
        signed = await dig(port, "-y", KEY, "example.", "AXFR")
        assert f"XFR size: {HOSTS + 4} records" in signed
        assert "Couldn't verify signature" not in signed
        wrong = await dig(port, "-y", KEY.replace("key.ex", "other.ex"), "example.", "AXFR")
        assert "Transfer failed" in wrong or "NOTAUTH" in wrong
        path.write_text(zone(2, "new IN A 10.0.0.2"))
        await has_serial(port, 2)
        changes = await dig(port, "example.", "IXFR=1", "+noall", "+answer")
        assert len([line for line in changes.splitlines() if line]) == 5
        assert "new.example." in changes


async def test_knot_as_a_secondary_is_notified_and_transfers(tmp_path: Path) -> None:
    path = tmp_path / "db"
    path.write_text(zone(1))
    knot_port = free_port()
    block = (
        f"file {path} {{\nreload 50ms\n}}\ntransfer {{\nto 127.0.0.1:{knot_port}\n}}\n"
        f"tsig {{\nsecret key.example. {SECRET}\nrequire AXFR IXFR\n}}"
    )
    async with serving(block) as (_, port):
        assert "Transfer failed" in await dig(port, "example.", "AXFR")
        async with knot(tmp_path / "knot", knot_port, "  master: kdns", port):
            await has_serial(knot_port, 1)
            path.write_text(zone(2, "new IN A 10.0.0.2"))
            await has_serial(knot_port, 2)


async def test_knot_as_a_primary_gives_and_notifies(tmp_path: Path) -> None:
    folder = tmp_path / "knot"
    folder.mkdir()
    hosts = "".join(f"h{number} IN A 10.0.0.1\n" for number in range(HOSTS))
    plain = zone(1).partition("$GENERATE")[0] + hosts  # knot reads no $GENERATE
    (folder / "example.zone").write_text(plain)
    knot_port, port = free_port(), free_port()
    keys = f"tsig {{\nsecret key.example. {SECRET}\n}}"
    block = f"secondary {{\ntransfer from 127.0.0.1:{knot_port}\ntsig key.example.\n}}\n{keys}"
    async with knot(folder, knot_port, "  notify: kdns", port), serving(block, port):
        await has_serial(port, 1)
        assert (await dig(port, f"h{HOSTS - 1}.example.", "+short")).strip() == "10.0.0.1"
        (folder / "example.zone").write_text(plain.replace("admin 1 ", "admin 2 "))
        config = str(folder / "knot.conf")
        process = await asyncio.create_subprocess_exec("/usr/sbin/knotc", "-c", config, "zone-reload", "example.")
        assert await process.wait() == 0
        await has_serial(port, 2)


pytestmark = pytest.mark.skipif(not shutil.which("dig"), reason="dig is not installed")
