"""`kdns trace` and `kdns render` from manifests and from a server, with nothing touched."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import nft_walk
import pytest
import yaml
from aiohttp import ClientSession, web
from click.testing import CliRunner, Result

from kdns.aio.localcluster import LocalCluster
from kdns.aio.rest_guard import RestConfig
from kdns.aio.snapshots import chosen_node, snapshot_from_manifests, snapshot_from_server
from kdns.cli import main
from kdns.cluster.objects import Node, Service
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.errors import ApiServerError, InputError
from kdns.proxy.config import parsed_network

GOLDEN = Path(__file__).parents[1] / "golden"
EXAMPLES = Path(__file__).parents[2] / "examples"
CLUSTER = GOLDEN / "trace_cluster.yaml"
TRACES: list[dict[str, str]] = yaml.safe_load((GOLDEN / "traces.yaml").read_text(encoding="utf-8"))


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


def traced(*arguments: str) -> Result:
    settings = ("--config", str(GOLDEN / "trace_settings.yaml"))
    node = () if "--node" in arguments else ("--node", "n1")
    return run("trace", "--manifests", str(CLUSTER), *settings, *node, *arguments)


@pytest.mark.parametrize("row", TRACES, ids=lambda row: str(row["name"]))
def test_traces(row: dict[str, str]) -> None:
    result = traced(*shlex.split(row["arguments"]))
    assert (result.exit_code, result.stderr, result.stdout) == (0, "", row["prints"])


def test_every_destination_meets_every_verdict() -> None:
    """The rows above are those of the table of verdicts, and each fate is among them."""
    names = "\n".join(row["name"] for row in TRACES)
    wanted = ("policy Local, endpoints on this node", "policy Local, none on this node", "no endpoint is ready")
    for front in ("cluster IP", "external IP", "node port"):
        assert all(f"{front}, {verdict}" in names for verdict in ("policy Cluster", *wanted))
    heads = "\n".join(row["prints"].partition("\n")[0] for row in TRACES)
    assert all(fate in heads for fate in ("forwarded", "rejected", "dropped", "let in", "left alone"))


@pytest.mark.parametrize(
    ("settings", "interface", "says"),
    [
        ("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}", "cni0", "a Pod of this node"),
        ("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}", "eth0", "is no Pod of this node"),
        (
            "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: veth}",
            "veth1",
            "a Pod of this node",
        ),
        ("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}", "", "is no Pod of this node"),
        ("clusterCIDR: 10.244.0.0/16", "", "a Pod of this node"),
        ("clusterCIDR: 10.0.0.0/16", "", "is no Pod of this node"),
        ("mode: nftables\nnftables: {masqueradeAll: true}", "", "the endpoint sees the node's address"),
        ("mode: iptables\niptables: {masqueradeAll: true}", "", "the endpoint sees the node's address"),
    ],
)
def test_how_pods_of_the_node_are_known(tmp_path: Path, settings: str, interface: str, says: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{settings}\n")
    arguments = ("--node", "n1", "--from", "10.244.1.9", "--to", "web:80", "--interface", interface)
    result = run("trace", "--manifests", str(CLUSTER), "--config", str(path), *arguments)
    assert (result.exit_code, says in result.stdout) == (0, True), result.output
    assert ("without --interface" in result.stderr) == ("Interface" in settings and not interface)


def test_a_trace_as_json() -> None:
    found = json.loads(traced("--from", "10.244.1.10", "--to", "web:http", "-o", "json").stdout)
    assert found["from"] == {"address": "10.244.1.10", "interface": ""}
    assert found["to"] == {"address": "10.96.0.10", "port": 80, "protocol": "TCP"}
    assert (found["node"], found["mode"], found["fate"]) == ("n1", "nftables", "forwarded")
    assert found["service"]["name"] == "web"
    assert found["service"]["foundBy"] == "cluster IP"
    assert found["endpoints"] == [
        {"address": "10.244.1.10", "port": 8080, "onThisNode": True, "seesNodeAddress": True},
        {"address": "10.244.2.10", "port": 8080, "onThisNode": False, "seesNodeAddress": False},
    ]
    assert next((each["address"], each["reason"]) for each in found["leftOut"]) == ("10.244.2.11", "is not ready")
    lost = json.loads(traced("--from", "10.244.1.10", "--to", "192.0.2.200:1", "-o", "json").stdout)
    assert (lost["fate"], lost["service"], lost["endpoints"]) == ("untouched", None, [])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--from 10.244.1.9 --to pods:80", "Service default/pods is headless"),
        ("--from 10.244.1.9 --to alias:80", "is only another name for example.com"),
        ("--from 10.244.1.9 --to weg:80", "no Service default/weg; did you mean default/web?"),
        ("--from 10.244.1.9 --to shop/web:80", "no Service shop/web; did you mean default/web?"),
        ("--from 10.244.1.9 --to xyzzy:80", "no Service default/xyzzy\n"),
        ("--from 10.244.1.9 --to web:htp", "has no port 'htp'; it has http/TCP"),
        ("--from 10.244.1.9 --to web:http/udp", "has no port 'http'"),
        ("--from fd00::9 --to web:80", "has no IPv6 cluster IP, only 10.96.0.10; --from is fd00::9"),
        ("--from 10.244.1.9 --to web", "wanted IP:PORT or NAMESPACE/SERVICE:PORT"),
        ("--from 10.244.1.9 --to web:80/icmp", "unknown protocol 'icmp'; wanted TCP, UDP, SCTP"),
        ("--from 10.244.1.9 --to 10.96.0.10:0", "wanted a port from 1 to 65535, found '0'"),
        ("--from 10.244.1.9 --to 10.96.0.10:http", "wanted a port from 1 to 65535, found 'http'"),
        ("--from 10.244.1.9 --to 10.96.0:80", "'10.96.0' is no IP address"),
        ("--from 10.244.1.9 --to fd00::1:80", "an IPv6 address goes into brackets"),
        ("--from 10.244.1.9 --to [fd00::1]:80", "wanted addresses of one IP family, found IPv4 and IPv6"),
        ("--from nobody --to web:80", "--from 'nobody': wanted an IP address"),
        ("--from 10.244.1.9 --to web:80 --node n3", "--node n3: no such node; there is n1, n2"),
        ("--from 10.244.1.9 --to web:80 --mode ipvs", "mode ipvs is not built yet; there are nftables, iptables"),
    ],
)
def test_what_cannot_be_traced(arguments: str, says: str) -> None:
    result = traced(*shlex.split(arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_the_ruleset_of_the_examples_means_what_the_trace_says() -> None:
    result = run("render", "--manifests", str(EXAMPLES))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.count("\ntable ip kdns {") == result.stdout.count("\ntable ip6 kdns {") == 1
    ipv4, separator, ipv6 = result.stdout.partition("add table ip6 kdns")
    ends = nft_walk.walk(nft_walk.read(ipv4), nft_walk.At("192.0.2.7", "10.96.0.11", "tcp", 6379), ["10.244.0.1"])
    told = json.loads(
        run(
            "trace", "--manifests", str(EXAMPLES), "--from", "192.0.2.7", "--to", "redis-master:6379", "-o", "json"
        ).stdout
    )
    assert [end.daddr for end in ends] == [each["address"] for each in told["endpoints"]]
    ends = nft_walk.walk(
        nft_walk.read(separator + ipv6), nft_walk.At("fd00::7", "fd00:10:96::40", "tcp", 80), ["fd00:10:244::1"]
    )
    assert [(end.daddr, end.dport) for end in ends] == [("fd00:10:244:1::41", 8080)]


def test_rendering_twice_gives_the_same() -> None:
    first, second = (run("render", "--manifests", str(EXAMPLES)).stdout for _ in range(2))
    assert first == second


def test_a_node_without_ranges_for_its_pods_is_told_of(tmp_path: Path) -> None:
    settings = ("--config", str(GOLDEN / "trace_settings.yaml"))
    assert run("render", *settings, "--manifests", str(CLUSTER), "--node", "n1").stderr == ""
    (tmp_path / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: bare}\n")
    result = run("render", *settings, "--manifests", str(tmp_path))
    assert result.exit_code == 0
    assert "detectLocalMode is NodeCIDR, but node bare has no podCIDRs" in result.stderr


def test_settings_show_in_the_ruleset(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
        "mode: nftables\nhostnameOverride: N2\nclusterCIDR: 10.244.0.0/16\nnftables: {masqueradeBit: 4}\n"
    )
    text = run("render", "--manifests", str(CLUSTER), "--config", str(path)).stdout
    assert "mark or 0x10" in text
    assert "ip saddr != 10.244.0.0/16 jump mark-for-masquerade" in text
    assert "192.0.2.2" in text


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--manifests", "/nowhere"), 2, "/nowhere: no such file or folder"),
        (("--manifests", "/nowhere", "--server", "http://127.0.0.1:1"), 2, "only one of"),
        (("--manifests", str(CLUSTER)), 2, "--node NAME is needed: there are n1, n2"),
        (("--manifests", str(CLUSTER), "--node", "n1", "--mode", "ipvs"), 2, "mode ipvs"),
        (("--manifests", str(CLUSTER), "--node", "n1", "--mode", "iptables"), 2, "cannot be rendered yet"),
        (("--manifests", str(CLUSTER), "--node", "n1", "--mode", "kernelspace"), 2, "'kernelspace' is not one of"),
        (("--manifests", str(CLUSTER), "--service-cidr", "10.0.0.0/33"), 2, "--service-cidr '10.0.0.0/33'"),
        (("--manifests", str(CLUSTER), "--service-cidr", "10.97.0.0/16"), 2, "trace_cluster.yaml:"),
        (("--config", "/nowhere"), 2, "/nowhere: cannot be read"),
        (("--server", "http://127.0.0.1:1"), 1, "http://127.0.0.1:1"),
        ((), 2, "no kubeconfig at /nowhere"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], code: int, says: str) -> None:
    result = run("render", *arguments, KUBECONFIG="/nowhere")
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in result.stderr


DEPLOYMENT = """\
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}
"""
SLICE = """\
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-abcde
  labels: {kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [10.1.2.3], nodeName: elsewhere}]
"""


SHOP = """\
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
"""
EXPORTED = {
    "services": "/api/v1/services",
    "slices": "/apis/discovery.k8s.io/v1/endpointslices",
    "nodes": "/api/v1/nodes",
}


def cluster_config() -> ClusterConfig:
    network = parsed_network("10.96.0.0/16")
    assert network
    return ClusterConfig((network,))


async def test_manifests_lead_to_what_a_control_plane_makes_of_them(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(DEPLOYMENT)
    made = await snapshot_from_manifests([tmp_path], cluster_config(), pytest.fail)
    assert made.state.services["default", "web"].spec.cluster_ip.startswith("10.96.")
    (endpoint_slice,) = made.state.slices_by_service["default", "web"].values()
    assert len(endpoint_slice.endpoints or ()) == 3
    assert made.service_cidrs == ("10.96.0.0/16",)
    assert chosen_node(made, "", pytest.fail) == "kdns"


async def test_slices_that_are_given_count_alone(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(DEPLOYMENT + SLICE)
    made = await snapshot_from_manifests([tmp_path], cluster_config(), pytest.fail)
    assert [each.key for each in made.state.slices_by_service["default", "web"].values()] == [("default", "web-abcde")]
    warnings: list[str] = []
    assert chosen_node(made, "elsewhere", warnings.append) == "elsewhere"
    assert warnings == ["there is no Node elsewhere, only endpoints on it: its addresses and zone are not known"]
    with pytest.raises(InputError, match="no such node"):
        chosen_node(made, "nowhere", warnings.append)


async def test_what_a_control_plane_refuses_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  ports:\n  - port: 0\n")
    with pytest.raises(InputError, match=rf"{path}:6: .*spec.ports\[0\].port"):
        await snapshot_from_manifests([path], cluster_config(), pytest.fail)


async def test_kinds_that_are_not_served_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\n")
    warnings: list[str] = []
    await snapshot_from_manifests([path], cluster_config(), warnings.append)
    assert len(warnings) == 1
    assert "example.com/v1 Thing is not served" in warnings[0]


def told(objects: Mapping[Any, Service | Node]) -> dict[Any, Any]:
    """What counts of objects: following a manifest leaves annotations."""
    return {key: (each.spec, each.status) for key, each in objects.items()}


async def test_an_export_of_a_cluster_is_the_cluster(tmp_path: Path) -> None:
    """Without Namespaces and Pods; the servers' own slices lead to loopback addresses, which nobody else's may."""
    local = LocalCluster(cluster_config(), RestConfig("127.0.0.1", 0))
    await local.start()
    try:
        async with asyncio.timeout(60), ClientSession() as session:
            (tmp_path / "a").mkdir()
            (tmp_path / "a" / "web.yaml").write_text(
                DEPLOYMENT.replace("{name: web}", "{name: web, namespace: shop}") + SHOP
            )
            await local.apply([tmp_path / "a"], lambda problem: pytest.fail(str(problem)))
            url = f"http://127.0.0.1:{local.address[1]}"
            for name, path in EXPORTED.items():
                async with session.get(url + path) as response:
                    (tmp_path / f"{name}.json").write_text(await response.text())
            asked = await snapshot_from_server(url, "", pytest.fail)
    finally:
        await local.stop()
    files = [tmp_path / f"{name}.json" for name in EXPORTED]
    read = await snapshot_from_manifests(files, cluster_config(), pytest.fail)
    assert told(read.state.services) == told(asked.state.services)
    assert read.state.slices.keys() == asked.state.slices.keys()
    assert all(each.endpoints == asked.state.slices[key].endpoints for key, each in read.state.slices.items())
    assert len(asked.state.slices_by_service["shop", "web"]) == 1
    assert ("default", "kubernetes") in asked.state.slices_by_service
    assert told(read.state.nodes) == told(asked.state.nodes)
    assert (read.service_cidrs, read.node_names) == (asked.service_cidrs, asked.node_names)


OBJECTS: dict[str, list[dict[str, Any]]] = {
    "/api/v1/services": [
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterIP": f"10.0.0.{at}", "ports": [{"port": 80}]},
        }
        for at, name in enumerate(("a", "b"), 1)
    ],
    "/apis/discovery.k8s.io/v1/endpointslices": [
        {
            "metadata": {"name": "a-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "a"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.0.1"]}],
            "ports": [{"name": "", "port": 8080}],
        },
        {"metadata": {"name": "odd", "namespace": "default"}, "endpoints": 7},
    ],
    "/api/v1/nodes": [
        {"metadata": {"name": "n1"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
    ],
    "/apis/networking.k8s.io/v1/servicecidrs": [
        {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.0.0.0/24"]}}
    ],
}


async def one_at_a_time(request: web.Request) -> web.Response:
    """Every list in pages of one object."""
    items, at = OBJECTS[request.path], int(request.query.get("continue", "0"))
    if request.path.endswith("servicecidrs"):
        return web.json_response({"items": items})
    more = str(at + 1) if at + 1 < len(items) else ""
    return web.json_response({"items": items[at : at + 1], "metadata": {"resourceVersion": "1", "continue": more}})


async def old(request: web.Request) -> web.Response:
    if request.path.endswith("servicecidrs"):
        return web.json_response({"kind": "Status", "code": 404, "message": "no"}, status=404)
    return await one_at_a_time(request)


async def strict(request: web.Request) -> web.Response:
    if request.path.endswith("servicecidrs"):
        return web.json_response({"kind": "Status", "code": 403, "message": "you may not"}, status=403)
    return await one_at_a_time(request)


async def no_kubernetes(_: web.Request) -> web.Response:
    return web.Response(text="<html>")


@pytest.mark.parametrize(
    ("handler", "cidrs", "warned", "error"),
    [
        (one_at_a_time, ("10.0.0.0/24",), 1, ""),
        (old, (), 1, ""),
        (strict, (), 2, ""),
        (no_kubernetes, (), 0, "/api/v1/services: not the answer of a Kubernetes API"),
    ],
)
async def test_from_a_server(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], cidrs: tuple[str, ...], warned: int, error: str
) -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    warnings: list[str] = []
    try:
        async with asyncio.timeout(60):
            asked = snapshot_from_server(f"http://127.0.0.1:{runner.addresses[0][1]}", "", warnings.append)
            if error:
                with pytest.raises(ApiServerError, match=error):
                    await asked
                return
            made = await asked
    finally:
        await runner.cleanup()
    assert sorted(made.state.services) == [("default", "a"), ("default", "b")]
    assert (made.service_cidrs, made.node_names, len(warnings)) == (cidrs, ("n1",), warned)
    assert "endpointslices default/odd is left out" in warnings[0]
    assert chosen_node(made, "", pytest.fail) == "n1"
