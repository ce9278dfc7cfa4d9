"""`kdns proxy` as a process against `kdns up`, with real packets: followed, stopped, started again, disturbed."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from node_process import KDNS, Api, Started, fetched, start, until
from patience import surely
from wholefiles import replace
from world import World

from kdns.netlink.io.conntrack import udp_flows

NODE = "192.0.2.1"
HEALTHZ, METRICS = "http://127.0.0.1:10256", "http://127.0.0.1:10249"
SETTINGS = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: machine
clusterCIDR: 10.1.0.0/24
nodePortAddresses: [primary]
clientConnection: {kubeconfig: kc}
oomScoreAdj: 0
conntrack: {maxPerCore: 0}
nftables: {minSyncPeriod: 50ms}
"""

DEEDS = ("flush ruleset", "delete table ip kdns", "flush chain ip kdns services", "flush map ip kdns service-ips")
"""What a stranger may do to the rules."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def api(folder: Path) -> Iterator[Api]:
    cluster = start(
        *("up", "--dns", "127.0.0.1:0", "--api", "127.0.0.1:0", "--kubeconfig", "kc", "--lb-pool", "198.51.100.0/28"),
        folder=folder,
    )
    cluster.wait_for("ready")
    yield Api(cluster.wait_for("api ").split()[1])
    assert cluster.stop() == 0


@contextmanager
def running(folder: Path) -> Iterator[Started]:
    (folder / "config.yaml").write_text(SETTINGS)
    started = start("proxy", "--config", "config.yaml", folder=folder)
    started.wait_for("ready")
    yield started
    if started.process.poll() is None:
        assert started.stop() == 0
    subprocess.run(["nft", "flush", "ruleset"], check=True)


@pytest.fixture
def own_node(world: World, api: Api, folder: Path) -> Iterator[Started]:
    """One that the test may end; these tests come before those of the shared one."""
    assert world.names
    assert api.url
    with running(folder) as started:
        yield started


@pytest.fixture(scope="module")
def node(world: World, api: Api, folder: Path) -> Iterator[Started]:
    assert world.names
    assert api.url
    with running(folder) as started:
        yield started


def tables() -> set[str]:
    return set(subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout.split("\n"))


def run(loop: asyncio.AbstractEventLoop, work: Awaitable[Any]) -> Any:
    return loop.run_until_complete(work)


def test_stop_leaves_the_rules_and_a_restart_takes_them_over(
    world: World, loop: asyncio.AbstractEventLoop, api: Api, own_node: Started, folder: Path
) -> None:
    vip = api.service("web", sessionAffinity="ClientIP")["spec"]["clusterIP"]
    api.endpoints("web", "10.1.0.2", "10.1.0.3")

    async def backend() -> str:
        answer = await surely(world, "10.1.1.2", vip, "TCP", 80)
        return answer.backend or answer.error

    async def check() -> None:
        async def is_reached() -> bool:
            return (await world.probe("10.1.1.2", vip, "TCP", 80)).backend.startswith("10.")

        await until(True, is_reached)
        chosen = {await backend() for _ in range(8)}
        assert len(chosen) == 1
        client = world.socket("remote", "10.1.1.3", socket.SOCK_STREAM)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, (vip, 80))
        assert own_node.stop() == 0
        assert {await backend() for _ in range(8)} == chosen
        again = start("proxy", "--config", "config.yaml", folder=folder)
        await asyncio.to_thread(again.wait_for, "ready")
        try:
            assert {await backend() for _ in range(8)} == chosen
            await loop.sock_sendall(client, b"hello")
            assert (await loop.sock_recv(client, 200)).startswith(b"10.1.0.")
        finally:
            client.close()
            assert again.stop() == 0

    run(loop, check())
    assert "table ip kdns" in tables()
    subprocess.run([KDNS, "proxy", "--cleanup"], check=True, cwd=folder)
    assert tables() == {""}


@pytest.mark.parametrize(("capabilities", "works"), [("-all,+net_admin", True), ("-net_admin", False)])
def test_one_capability_is_enough_and_is_needed(
    world: World, api: Api, folder: Path, capabilities: str, works: bool
) -> None:
    assert world.names
    assert api.url
    (folder / "config.yaml").write_text(SETTINGS)
    started = start("proxy", "--config", "config.yaml", folder=folder, capabilities=capabilities)
    if works:
        started.wait_for("ready")
        assert started.stop() == 0
        assert "table ip kdns" in tables()
        subprocess.run(["nft", "flush", "ruleset"], check=True)
    else:
        assert "requires the capability CAP_NET_ADMIN" in started.wait_for("Error: ")
        assert started.ended() == 1
        assert tables() == {""}


def test_a_second_one_in_the_network_namespace_is_refused(api: Api, own_node: Started, folder: Path) -> None:
    """In whatever mode; it names the first. Another network namespace has rules of its own."""
    assert api.url
    (folder / "second.yaml").write_text(SETTINGS.replace("mode: nftables", "mode: userspace"))
    second = start("proxy", "--config", "second.yaml", folder=folder)
    assert f"process {own_node.process.pid} serves this network namespace already" in second.wait_for("Error: ")
    assert second.ended() == 1
    own_node.process.kill()
    own_node.ended()
    third = start("proxy", "--config", "config.yaml", folder=folder)
    third.wait_for("ready")
    assert third.stop() == 0


ASKED = """
import asyncio
from kdns.proxy.takeover.io.modes import runtime
from kdns.proxy.settings.settings import Settings

async def main():
    mode = await runtime("userspace").start(Settings(mode="userspace"))
    print(mode.udp_targets is not None)
    await mode.close(keep_rules=False)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("namespaces", "captures"),
    [((), "True"), (("--user", "--map-root-user"), "False"), (("--user", "-r", "-n"), "True")],
)
@pytest.mark.usefixtures("world")
def test_relays_capture_where_nftables_lets_them(namespaces: tuple[str, ...], captures: str) -> None:
    """In a user namespace the process has every capability, over a network namespace only if that is its own."""
    command = ["unshare", *namespaces, sys.executable, "-c", ASKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split()[-1:] == [captures], done.stdout + done.stderr


def test_rules_that_a_stranger_flushed_or_changed_come_back(
    world: World, loop: asyncio.AbstractEventLoop, api: Api, node: Started
) -> None:
    vip = api.service("healed")["spec"]["clusterIP"]
    api.endpoints("healed", "10.1.0.2")

    async def backend() -> str:
        return (await world.probe("10.1.1.2", vip, "TCP", 80)).backend

    def told() -> int:
        return sum("rules changed by another process" in line for line in list(node.lines))

    for deed in DEEDS:
        run(loop, until("10.1.0.2", backend))
        before = told()

        async def is_told(before: int = before) -> bool:
            return told() > before

        subprocess.run(["nft", *deed.split()], check=True)
        run(loop, until("10.1.0.2", backend))
        run(loop, until(True, is_told))
    # What happens elsewhere is nobody's business, and kdns's own changes are its own.
    api.endpoints("healed", "10.1.0.3")
    run(loop, until("10.1.0.3", backend))
    before = told()
    subprocess.run(["nft", "add table ip other; add chain ip other c; delete table ip other"], check=True)
    for number in range(5):
        api.endpoints("healed", *(["10.1.0.2", "10.1.0.3"][: 1 + number % 2]))
    run(loop, until("10.1.0.2", backend))

    async def has_settled() -> bool:
        return "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0.0" in fetched(f"{METRICS}/metrics")[1]

    run(loop, until(True, has_settled))
    assert told() == before


def test_udp_clients_follow_the_endpoints_and_others_stay(
    world: World, loop: asyncio.AbstractEventLoop, api: Api, node: Started
) -> None:
    assert node.process.poll() is None
    vip = api.service("dns", protocol="UDP", type="NodePort")["spec"]["clusterIP"]
    other = api.service("quiet", protocol="UDP")["spec"]["clusterIP"]
    api.endpoints("dns", "10.1.0.2", protocol="UDP")
    api.endpoints("quiet", "10.1.0.3", protocol="UDP")
    node_port = api.ask("GET", "/api/v1/namespaces/default/services/dns")["spec"]["ports"][0]["nodePort"]

    async def check() -> None:
        loop = asyncio.get_running_loop()
        clients = {
            "vip": (world.socket("remote", "10.1.1.2", socket.SOCK_DGRAM), (vip, 80)),
            "node port": (world.socket("outside", "192.0.2.100", socket.SOCK_DGRAM), (NODE, node_port)),
            "other": (world.socket("remote", "10.1.1.3", socket.SOCK_DGRAM), (other, 80)),
        }
        for client, destination in clients.values():
            client.connect(destination)

        async def answers(name: str) -> str:
            client, _ = clients[name]
            try:
                async with asyncio.timeout(0.3):
                    await loop.sock_sendall(client, b"hello")
                    return (await loop.sock_recv(client, 200)).decode().split()[0]
            except (TimeoutError, OSError):
                return "nobody"

        for name, wanted in (("vip", "10.1.0.2"), ("node port", "10.1.0.2"), ("other", "10.1.0.3")):
            await until(wanted, partial(answers, name))
        kept = {flow for flow in udp_flows("IPv4") if flow.destination[0] == other}
        assert kept
        for endpoints, wanted in ((("10.1.0.3",), "10.1.0.3"), ((), "nobody"), (("10.1.0.2",), "10.1.0.2")):
            api.endpoints("dns", *endpoints, protocol="UDP")
            for name in ("vip", "node port"):
                await until(wanted, partial(answers, name))
            await until("10.1.0.3", partial(answers, "other"))
        assert kept <= set(udp_flows("IPv4"))
        for client, _ in clients.values():
            client.close()

    run(loop, check())
    assert "deleted_entries_total" in fetched(f"{METRICS}/metrics")[1]


def test_node_ports_are_at_the_addresses_of_a_machine_whose_node_nobody_made(
    world: World, loop: asyncio.AbstractEventLoop, api: Api, node: Started
) -> None:
    """Clients keep their addresses with policy Local."""
    assert node.process.poll() is None
    made = api.service("here", type="NodePort", externalTrafficPolicy="Local")
    port = made["spec"]["ports"][0]["nodePort"]

    async def answer() -> tuple[str, str]:
        found = await world.probe("192.0.2.100", NODE, "TCP", port)
        return found.backend or found.error, found.seen

    for where, wanted in (("machine", ("10.1.0.2", "192.0.2.100")), ("kdns", ("dropped", ""))):
        api.endpoints("here", "10.1.0.2", node=where)
        run(loop, until(wanted, answer))


def test_load_balancers_are_told_where_endpoints_are(loop: asyncio.AbstractEventLoop, api: Api, node: Started) -> None:
    assert node.process.poll() is None
    made = api.service("shop", type="LoadBalancer", externalTrafficPolicy="Local")
    port = made["spec"]["healthCheckNodePort"]

    def told() -> tuple[int, str, int]:
        status, body, headers = fetched(f"http://{NODE}:{port}/")
        found = json.loads(body or "{}") if status else {}  # one that is about to be closed says nothing
        return status, headers.get("X-Load-Balancing-Endpoint-Weight", ""), found.get("localEndpoints", -1)

    async def asked() -> tuple[int, str, int]:
        return await asyncio.to_thread(told)

    for endpoints, where, wanted in (
        ((), "machine", (503, "0", 0)),
        (("10.1.0.2", "10.1.0.3"), "machine", (200, "2", 2)),
        (("10.1.1.2",), "elsewhere", (503, "0", 0)),
    ):
        api.endpoints("shop", *endpoints, node=where)
        run(loop, until(wanted, asked))
    api.ask("DELETE", "/api/v1/namespaces/default/services/shop")
    run(loop, until((0, "", -1), asked))


def test_a_health_check_that_cannot_be_served_is_told_and_tried_again(
    loop: asyncio.AbstractEventLoop, api: Api, node: Started
) -> None:
    assert node.process.poll() is None
    blocker = socket.create_server((NODE, 30019))
    api.service("blocked", type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=30019)

    async def warnings() -> list[str]:
        found = api.ask("GET", "/api/v1/namespaces/default/events")["items"]
        about = [each for each in found if each["involvedObject"]["name"] == "blocked"]
        return [each["reason"] for each in about if each["type"] == "Warning"]

    run(loop, until(["FailedToStartServiceHealthcheck"], warnings))
    blocker.close()

    async def status() -> int:
        return (await asyncio.to_thread(fetched, f"http://{NODE}:30019/"))[0]

    run(loop, until(503, status))
    assert len(run(loop, warnings())) == 1


def test_health_metrics_and_configuration_are_served(
    world: World, loop: asyncio.AbstractEventLoop, api: Api, node: Started
) -> None:
    assert node.process.poll() is None
    vip = api.service("counted")["spec"]["clusterIP"]
    api.endpoints("counted", "10.1.0.2")

    async def works() -> str:
        return (await world.probe("10.1.1.2", vip, "TCP", 80)).backend

    run(loop, until("10.1.0.2", works))

    async def healthz_status() -> int:
        return (await asyncio.to_thread(fetched, f"{HEALTHZ}/healthz"))[0]

    assert run(loop, healthz_status()) == 503, "without its Node"
    api.ask("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "machine"}})
    run(loop, until(200, healthz_status))
    status, body, headers = fetched(f"{HEALTHZ}/healthz")
    assert (status, json.loads(body)["nodeEligible"], headers["Content-Type"]) == (
        200,
        True,
        "application/json; charset=utf-8",
    )
    labels = 'namespace="default",port="p",protocol="TCP",service="counted"'

    def counted() -> float:
        rows = [line for line in fetched(f"{METRICS}/metrics")[1].splitlines() if labels in line]
        return sum(float(line.split()[-1]) for line in rows if line.startswith("kdns_service_connections_total"))

    before = counted()
    assert before >= 1
    api.endpoints("counted", "10.1.0.2", "10.1.0.3")  # so the kernel's counter begins anew
    seen = set[str]()

    async def has_gone_on() -> bool:
        seen.add(await works())
        now = counted()
        assert now >= before
        return {"10.1.0.2", "10.1.0.3"} <= seen and now > before

    run(loop, until(True, has_gone_on))
    metrics = fetched(f"{METRICS}/metrics")[1]
    monitoring = Path(__file__).parents[3] / "deploy" / "monitoring"
    for file in ("rules.yaml", "dashboard-proxy.json"):
        for name in re.findall(r"\b(?:kubeproxy|kdns|process)_\w+", (monitoring / file).read_text()):
            if file.endswith(".json") or name.startswith(("kubeproxy", "kdns_proxy")):
                assert re.search(rf"^# TYPE {re.sub('_(bucket|count)$', '', name)} ", metrics, re.MULTILINE), name
    assert fetched(f"{METRICS}/proxyMode")[1] == "nftables"
    status, page, _ = fetched(f"{METRICS}/status")
    assert (status, '<h2 id="refused">' in page) == (200, True)
    assert re.search(r'<th scope="row">IPv4</th><td>\d+</td>', page)
    status, page, _ = fetched(f"{METRICS}/status/trace?from=10.1.0.2&to=10.96.0.1:80")
    assert (status, "<pre" in page) == (200, True)
    assert "default/counted</a></th><td>ClusterIP</td>" in fetched(f"{METRICS}/status/services?filter=counted")[1]
    status, page, _ = fetched(f"{METRICS}/status/service?namespace=default&name=counted")
    assert (status, "</th><td>cluster IP</td><td>" in page) == (200, True)
    assert fetched(f"{METRICS}/status/trace?from=nobody&to=10.96.0.1:80")[0] == 400
    assert json.loads(fetched(f"{METRICS}/configz")[1])["kubeproxy.config.k8s.io"]["clusterCIDR"] == "10.1.0.0/24"
    assert fetched(f"{METRICS}/healthz")[1] == "ok"
    assert 'kubernetes_healthcheck{name="ping",type="healthz"} 1.0' in fetched(f"{METRICS}/metrics/slis")[1]
    assert (
        "\nPaths: /configz /flagz /healthz /metrics /proxyMode /status /statusz\n" in fetched(f"{METRICS}/statusz")[1]
    )
    assert "\nconfig=config.yaml\n" in fetched(f"{METRICS}/flagz")[1]
    assert 'rest_client_request_duration_seconds_count{host="127.0.0.1:' in metrics
    taints = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
    for spec, healthz in (({"taints": taints}, 503), ({"taints": None}, 200)):
        api.ask("PATCH", "/api/v1/nodes/machine", {"spec": spec}, "application/merge-patch+json")
        run(loop, until(healthz, healthz_status))
        assert fetched(f"{HEALTHZ}/livez")[0] == 200


def test_a_changed_file_is_followed_and_a_wrong_one_is_told(
    world: World, loop: asyncio.AbstractEventLoop, api: Api, node: Started, folder: Path
) -> None:
    vip = api.service("seen")["spec"]["clusterIP"]
    api.endpoints("seen", "10.1.0.2")

    async def seen_as() -> str:
        return (await surely(world, "10.1.0.3", vip, "TCP", 80)).seen

    run(loop, until("10.1.0.3", seen_as))
    replace(folder / "config.yaml", SETTINGS.replace("nftables: {", "nftables: {masqueradeBit: 77, "))
    assert "must be within the range" in node.wait_for("configuration file is invalid")
    assert run(loop, seen_as()) == "10.1.0.3"
    replace(folder / "config.yaml", SETTINGS.replace("nftables: {", "nftables: {masqueradeAll: true, "))

    async def is_masqueraded() -> bool:
        return await seen_as() not in {"10.1.0.3", ""}

    run(loop, until(True, is_masqueraded))
    assert node.process.poll() is None
