"""What stands around the rules of a node: health, limits of the kernel, what is kept of the cluster, settings."""

import asyncio
import os
import shutil
import subprocess
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from fake_modes import FakeMode, fake_row
from wholefiles import replace

from kdns.apps.proxy import NodeProxy, api_source, listen_address, supervise
from kdns.cli.main import main
from kdns.cluster.objects import EndpointSlice, Node, Service
from kdns.cluster.state import State
from kdns.errors import InputError
from kdns.net import FAMILIES
from kdns.proxy.nftables.mode import NFTABLES, NftablesSettings
from kdns.proxy.node.health import HealthCheck, health_checks, is_eligible
from kdns.proxy.node.io import host_settings
from kdns.proxy.node.io.health import ProxyHealth
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.planner import plan
from kdns.proxy.plan.service_ports import empty_plan
from kdns.proxy.plan.state import ProxyState
from kdns.proxy.settings.settings import ClientConnection, Conntrack, Settings
from kdns.proxy.sync.io.proxier import Footprint
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.proxy.sync.schedule import SyncTiming
from kdns.runtime.requirements import CAPABILITY

Json = dict[str, Any]


def service(**spec: Any) -> Service:
    made = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
    made |= {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"], "ports": [{"name": "p", "port": 80}]}
    return msgspec.convert({"metadata": {"name": "web", "namespace": "d"}, "spec": made | spec}, Service)


def endpoint_slice(name: str, family: str, *rows: tuple[str, str, Json]) -> EndpointSlice:
    endpoints = [
        {"addresses": [ip], "nodeName": where, "conditions": flags, "targetRef": {"kind": "Pod", "name": ip}}
        for ip, where, flags in rows
    ]
    labels = {"kubernetes.io/service-name": "web"}
    made = {"metadata": {"name": name, "namespace": "d", "labels": labels}, "addressType": family}
    return msgspec.convert(made | {"endpoints": endpoints, "ports": [{"name": "p", "port": 8080}]}, EndpointSlice)


READY, LEAVING = {"ready": True}, {"ready": False, "serving": True, "terminating": True}
SLICES = (
    endpoint_slice("a", "IPv4", ("10.1.0.2", "here", READY), ("10.1.0.3", "here", LEAVING), ("10.1.1.2", "there", {})),
    endpoint_slice("b", "IPv4", ("10.1.0.2", "here", READY), ("10.1.0.4", "here", {})),
    endpoint_slice("c", "IPv6", ("fd00:1::2", "here", READY)),
)


def state_of(made: State, *objects: Any) -> State:
    for obj in objects:
        made.upsert(obj)
    return made


WEB = ("d", "web")
CHECKS: tuple[tuple[str, Json, tuple[HealthCheck, ...]], ...] = (
    (
        "ready endpoints of this node, each address once, by family",
        {},
        (HealthCheck("IPv4", 32000, WEB, 2), HealthCheck("IPv6", 32000, WEB, 1)),
    ),
    ("one family", {"clusterIPs": ["10.96.0.1"]}, (HealthCheck("IPv4", 32000, WEB, 2),)),
    ("policy Cluster", {"externalTrafficPolicy": "Cluster"}, ()),
    ("no load balancer", {"type": "NodePort"}, ()),
    ("no port", {"healthCheckNodePort": 0}, ()),
    ("no cluster IP", {"clusterIP": "None", "clusterIPs": ["None"]}, ()),
)


@pytest.mark.parametrize(("what", "spec", "wanted"), CHECKS, ids=[row[0] for row in CHECKS])
@pytest.mark.parametrize("kind", [State, ProxyState])
def test_health_checks(what: str, spec: Json, wanted: tuple[HealthCheck, ...], kind: type[State]) -> None:
    state = state_of(kind(), service(**spec), *SLICES)
    assert health_checks(state, "here", WEB) == wanted, what
    assert health_checks(state, "here", ("d", "nobody")) == ()


def test_health_checks_are_where_node_ports_are() -> None:
    own = (ip_address("192.0.2.1"), ip_address("10.9.0.1"), ip_address("2001:db8::1"))
    view = NodeView("here", "", (own[0],), own)
    for addresses, wanted4, wanted6 in (
        ((), ("0.0.0.0",), ("::",)),
        (("primary",), ("192.0.2.1",), ()),
        ((ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")), ("10.9.0.1",), ("2001:db8::1",)),
    ):
        config = ProxyConfig(NFTABLES, node_port_addresses=addresses)  # type: ignore[arg-type]
        ipv4, ipv6 = (empty_plan(family, config, view).node_ports for family in FAMILIES)
        assert ipv4.listen_addresses(loopback=False) == wanted4
        assert ipv6.listen_addresses(loopback=False) == wanted6


@pytest.mark.parametrize(
    ("established", "oldest_s", "wanted"),
    [(True, None, True), (True, 41.0, True), (True, 40.0, False), (False, None, False), (False, 99.0, False)],
)
def test_current(established: bool, oldest_s: float | None, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = SyncRunner(State(), FakeMode("x", [], Footprint()), lambda: None, SyncTiming(sync_s=30.0))
    runner.stats.oldest_pending_s = oldest_s
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    if established:
        runner.established.set()
    health = ProxyHealth(runner, lambda: None)
    assert (health.is_current, health.is_alive) == (wanted, oldest_s in {None, 41.0, 99.0})


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        ({"metadata": {"name": "n"}}, True),
        ({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "node.kubernetes.io/not-ready"}]}}, True),
        ({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]}}, False),
        ({"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        (None, False),
    ],
)
def test_eligible(node: Json | None, wanted: bool) -> None:
    assert is_eligible(msgspec.convert(node, Node) if node else None) == wanted


@pytest.mark.parametrize(
    ("conntrack", "cpus", "wanted"),
    [
        (Conntrack(), 2, 131072),
        (Conntrack(), 8, 262144),
        (Conntrack(), 64, 1048576),
        (Conntrack(min=2000000), 64, 2000000),
        (Conntrack(max_per_core=0), 8, 0),
    ],
)
def test_connection_limit(conntrack: Conntrack, cpus: int, wanted: int) -> None:
    assert host_settings.sysctls(conntrack, cpus).get("net/netfilter/nf_conntrack_max", 0) == wanted


def test_sysctls_are_set_where_they_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "net" / "netfilter"
    folder.mkdir(parents=True)
    there = {
        "nf_conntrack_max": 9_000_000,
        "nf_conntrack_buckets": 1000,
        "nf_conntrack_tcp_timeout_established": 432000,
    }
    for name, value in there.items():
        (folder / name).write_text(f"{value}\n")
    monkeypatch.setattr(host_settings, "FOLDERS", (tmp_path,))
    host_settings.apply_sysctls(Conntrack(max_per_core=1, min=40000, udp_timeout_s=30))
    found = {path.name: path.read_text().strip() for path in folder.iterdir()}
    # A higher limit stays, and what the kernel does not have is told and left alone.
    assert found == {
        "nf_conntrack_max": "9000000",
        "nf_conntrack_buckets": "10000",
        "nf_conntrack_tcp_timeout_established": "86400",
    }


def test_why_a_sysctl_cannot_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_settings, "FOLDERS", (tmp_path,))
    monkeypatch.setattr("os.access", lambda path, _mode: path.name != "fixed")
    for name in ("fixed", "free"):
        (tmp_path / name).write_text("1\n")
    assert host_settings.sysctl_refusal("fixed", 1) == ""
    assert host_settings.sysctl_refusal("fixed", 0) == "fixed = 0: not writable"
    assert host_settings.sysctl_refusal("free", 0) == ""
    assert host_settings.sysctl_refusal("absent", 1) == "absent = 1: No such file or directory"
    assert (tmp_path / "free").read_text() == "1\n"


def test_a_sparse_state_leads_to_the_same_plan() -> None:
    view = NodeView("here", "", (ip_address("192.0.2.1"),), (ip_address("192.0.2.1"),))
    objects = (service(), *SLICES)
    plans = [plan(state_of(kind(), *objects), view, ProxyConfig(NFTABLES)) for kind in (State, ProxyState)]
    assert plans[0] == plans[1]
    sparse = state_of(ProxyState(), *objects)
    assert [sparse.upsert(obj) for obj in objects] == [None] * len(objects)
    assert sparse.delete(EndpointSlice, ("d", "a"))
    assert len(sparse.slices_by_service["d", "web"]) == 2


def test_addresses_of_servers() -> None:
    assert listen_address("[::1]:10249") == ("::1", 10249)
    assert listen_address("0.0.0.0:10256") == ("0.0.0.0", 10256)


@pytest.mark.parametrize(
    ("client", "master", "wanted"),
    [
        (ClientConnection(kubeconfig="kc"), "", {"kubeconfig": "kc"}),
        (ClientConnection(kubeconfig="kc"), "http://a", {"kubeconfig": "kc", "server": "http://a"}),
        (ClientConnection(), "http://a", {"endpoint": "http://a"}),
        (ClientConnection(qps=50, burst=100), "", {"qps": 50, "burst": 100}),
        (ClientConnection(), "", {"others": "--kubeconfig FILE or --master URL"}),
    ],
)
def test_the_api(client: ClientConnection, master: str, wanted: Json) -> None:
    found = api_source(Settings(client_connection=client), master)
    assert {name: getattr(found, name) for name in wanted} == wanted
    assert ("qps" in wanted) == bool(found.qps)


def test_a_node_keeps_its_plan_inputs_when_its_object_goes() -> None:
    proxy = NodeProxy(Settings(detect_local_mode="NodeCIDR", hostname_override="here"), api_source(Settings()))
    assert proxy.plan_inputs() is None
    proxy.state.upsert(msgspec.convert({"metadata": {"name": "here"}}, Node))
    assert proxy.plan_inputs() is None
    proxy.state.upsert(msgspec.convert({"metadata": {"name": "here"}, "spec": {"podCIDR": "10.1.0.0/24"}}, Node))
    found = proxy.plan_inputs()
    assert found
    assert found[1].local_pods
    assert found[1].local_pods.networks == (ip_network("10.1.0.0/24"),)
    proxy.state.delete(Node, ("", "here"))
    assert proxy.plan_inputs() == found
    assert proxy.node is None


@pytest.mark.parametrize(
    ("texts", "starts_again"),
    [
        (["-10", "1.00"], False),
        (["-10", "20"], True),
        (["unsupported", "iptables"], True),
    ],
)
async def test_the_program_starts_again_with_other_settings_that_work(
    texts: list[str], starts_again: bool, tmp_path: Path
) -> None:
    """Not with a file that has mistakes, one that says the same, or one with a mode that cannot work here."""
    file, stop, reads, said = tmp_path / "config", asyncio.Event(), list[str](), list[str]()

    def read() -> Settings:
        reads.append(file.read_text())
        if reads[-1].isalpha():
            return Settings(mode=reads[-1])
        if reads[-1].startswith("-"):
            raise InputError("below zero")
        return Settings().with_section(NftablesSettings(min_sync_period_s=float(reads[-1])))

    class Node(NodeProxy):
        async def run(self) -> None:
            self.established.set()
            await asyncio.Event().wait()

    file.write_text("1")
    runtimes = {name: fake_row(name, reason="no" * (name == "unsupported")) for name in ("nftables", "unsupported")}
    runtimes["iptables"] = fake_row("iptables")
    task = asyncio.create_task(
        supervise(
            read,
            lambda settings: Node(settings, api_source(settings)),
            stop,
            asyncio.Event(),
            file=file,
            say=said.append,
            every_s=0.001,
            runtime_of=runtimes.__getitem__,
        )
    )
    async with asyncio.timeout(60):
        while not said:  # noqa: ASYNC110 - the node is the other task's
            await asyncio.sleep(0.001)
        for text in texts:
            replace(file, text)
            while reads[-1] != text:  # noqa: ASYNC110 - the reader is the other task's
                await asyncio.sleep(0.001)
        if not starts_again:
            stop.set()
        assert await task is starts_again
    assert (said, reads) == (["ready"], ["1", *texts])


def test_what_the_command_does_without_a_node(tmp_path: Path) -> None:
    written = tmp_path / "config.yaml"
    done = CliRunner().invoke(main, ["proxy", "--cluster-cidr", "10.1.0.0/16", "--write-config-to", str(written)])
    assert done.exit_code == 0, done.output
    assert "clusterCIDR: 10.1.0.0/16" in written.read_text()
    for arguments, wanted in (
        (["--proxy-mode", "netsh", "--master", "http://127.0.0.1:1"], "netsh"),
        (["--metrics-bind-address", "nowhere"], "must be IP:port"),
        (["--config", str(tmp_path / "none")], "none"),
    ):
        done = CliRunner().invoke(main, ["--log-level", "error", "proxy", *arguments])
        assert (done.exit_code, wanted in done.output) == (2, True), done.output


@pytest.mark.parametrize(
    "limited", [("setpriv", "--bounding-set=-all", "--inh-caps=-all"), ("unshare", "--user", "--map-root-user")]
)
def test_without_the_capability_over_its_network_only_kdns_speaks(limited: tuple[str, ...]) -> None:
    """The program nft has a line of its own for it. In a user namespace a process has all capabilities but for that."""
    if os.geteuid() != 0 or not shutil.which(limited[0]):
        pytest.skip(f"needs root and {limited[0]}, of util-linux")
    program = (
        "import asyncio; from kdns.proxy.nftables.io.start import unsupported;"
        "from kdns.proxy.settings.settings import Settings; print(asyncio.run(unsupported(Settings())))"
    )
    done = subprocess.run([*limited, sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"Operation not permitted; {CAPABILITY}\n", "")
