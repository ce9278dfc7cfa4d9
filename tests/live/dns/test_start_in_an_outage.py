"""A server that starts while no API answers serves the snapshot of the one before, and says so."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from dns_client import Udp, answers, packet, rcode, read
from dns_live import SERVICES, TIMING, api_of, cluster, page, port_of, serving
from fake_api import service, until

from kdns.cluster.io import clusters
from kdns.cluster.io.snapshots import SnapshotKeeper
from kdns.dns.types import EXTENDED_ERROR
from kdns.dnsserver.io.server import DnsServer

NAMES = [f"s{number}.default.svc.cluster.local" for number in range(SERVICES)]
ABSENT = "nothing.default.svc.cluster.local"
STALE, STALE_NXDOMAIN = 3, 19


@pytest.fixture(autouse=True)
def _haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "SnapshotKeeper", partial(SnapshotKeeper, patience_s=0.1, every_s=0.01))


def mark(response: bytes) -> int | None:
    """The INFO-CODE of the Extended DNS Error, if there is one."""
    for record in read(response).ar:
        for option in record.rdata if isinstance(record.rdata, list) else ():
            if option.code == EXTENDED_ERROR:
                return int.from_bytes(option.data[:2], "big")
    return None


async def shown(server: DnsServer, name: str, qtype: str = "A") -> tuple[str, list[str], int | None]:
    with Udp(port_of(server)) as udp:
        response = await udp.ask(packet(name, qtype, payload_bytes=1232))
    return rcode(response), answers(response), mark(response)


async def saved(server: DnsServer) -> None:
    await until(lambda: server.clusters[0].snapshot.saved_s > 0)


async def metric(server: DnsServer, name: str) -> float:
    lines = (await page(server, "/metrics"))[1].splitlines()
    (value,) = [line.split()[-1] for line in lines if line.startswith(f"{name}{{")]
    return float(value)


@pytest.mark.parametrize("ready", ["", " unready"])
async def test_a_restart_in_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready: str) -> None:
    options = f"snapshot {tmp_path}/cluster 1h{ready}"
    async with api_of(cluster()) as api:
        async with serving(api.url, monkeypatch, options=options) as server:
            await saved(server)
            before = {name: await shown(server, name) for name in NAMES}
            assert await metric(server, "kdns_snapshot_served") == 0
        assert (tmp_path / "cluster").stat().st_mode & 0o777 == 0o600
        await api.stop()
        async with serving(api.url, monkeypatch, options=options) as server:
            rcodes = Counter[str]()
            for name in NAMES * 2:  # the second answer is the table's
                code, found, marked = await shown(server, name)
                rcodes[code] += 1
                assert (code, found, None) == before[name]
                assert marked == STALE
            assert rcodes == {"NOERROR": 2 * SERVICES}
            assert await shown(server, ABSENT) == ("NXDOMAIN", [], STALE_NXDOMAIN)
            assert await shown(server, "1.0.96.10.in-addr.arpa", "PTR") == ("NOERROR", [f"{NAMES[0]}."], STALE)
            assert await metric(server, "kdns_snapshot_served") == 1
            assert (await page(server, "/ready"))[0] == (503 if ready else 200)
            api.cluster.put("services", service("s0", "10.96.9.9"))
            api.cluster.delete("services", ("default", "s1"))
            await api.start()
            await until(lambda: not server.clusters[0].state.stale)
            assert await shown(server, NAMES[0]) == ("NOERROR", ["10.96.9.9"], None)
            assert await shown(server, NAMES[1]) == ("NXDOMAIN", [], None)
            assert {name: await shown(server, name) for name in NAMES[2:]} == {name: before[name] for name in NAMES[2:]}
            assert (await page(server, "/ready"))[0] == 200
            assert await metric(server, "kdns_snapshot_served") == 0


async def test_without_a_snapshot_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with api_of(cluster()) as api:
        await api.stop()
        options = f"snapshot {tmp_path}/cluster\nstartup_timeout 1s"
        async with serving(api.url, monkeypatch, options=options, timing=TIMING) as server:
            assert (await shown(server, NAMES[0]))[0] == "SERVFAIL"
            await api.start()
            await until(lambda: server.is_synced)
            await saved(server)
            assert await shown(server, NAMES[0]) == ("NOERROR", ["10.96.0.1"], None)


async def test_a_file_that_cannot_be_written_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    options = f"snapshot {tmp_path}/absent/cluster"
    async with api_of(cluster()) as api, serving(api.url, monkeypatch, options=options) as server:
        await until(lambda: server.clusters[0].snapshot.failures > 1)
        (tmp_path / "absent").mkdir()
        await saved(server)
    assert capfd.readouterr().out.count("snapshot not saved") == 1
