"""`kdns trace` and `kdns render` from manifests and from a server, with nothing touched."""

import json
import shlex
from pathlib import Path

import nft_walk
import pytest
from click.testing import CliRunner, Result
from yaml_file import yaml_file

from kdns.cli.main import main

GOLDEN = Path(__file__).parents[2] / "golden"
EXAMPLES = Path(__file__).parents[3] / "examples"
CLUSTER = GOLDEN / "trace_cluster.yaml"
TRACES: list[dict[str, str]] = yaml_file(GOLDEN / "traces.yaml")


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
        ("--from 10.244.1.9 --to web", "expected IP:PORT, SERVICE[.NAMESPACE]:PORT or NAMESPACE/SERVICE:PORT"),
        ("--from 10.244.1.9 --to weg.default.svc:80", "no Service default/weg; did you mean default/web?"),
        ("--from 10.244.1.9 --to weg.default.svc.cluster.local:80", "no Service default/weg; did you mean default/web"),
        (
            "--from 10.244.1.9 --to web.default.svc.:80",
            "no name of a Service; expected SERVICE, SERVICE.NAMESPACE or SE",
        ),
        ("--from 10.244.1.9 --to web.default.svc.a.b:80", "SERVICE.NAMESPACE.svc.cluster.local, or before it the name"),
        ("--from 10.244.1.9 --to alias.default.svc.cluster.local:80", "is only another name for example.com"),
        ("--from 10.244.1.9 --to nginx.shop:80", "go there directly; expected one of web-0.nginx.shop, 10-244-2-31"),
        ("--from 10.244.1.9 --to web-1.nginx.shop:80", "Service shop/nginx has no ready endpoint web-1; it has web-0"),
        ("--from 10.244.1.9 --to web-0.nginx.shop:htp", "Service shop/nginx has no port 'htp'; it has http/TCP"),
        ("--from fd00::9 --to 10-244-2-31.nginx.shop:80", "10-244-2-31 of Service shop/nginx has no IPv6 address"),
        ("--from 10.244.1.9 --to nginx:80", "no Service default/nginx; did you mean shop/nginx?"),
        ("--from 10.244.1.9 --to web:80 -n shop", "no Service shop/web; did you mean default/web?"),
        ("--from 10.244.1.9 --to web:80 -n n1", "--namespace n1: no such namespace; there is default,"),
        ("--from 10.244.1.9 --to 10.96.0.10:80 -n shop", "is no name; a node is named with --node"),
        ("--from 10.244.1.9 --to web:80/icmp", "unknown protocol 'icmp'; expected TCP, UDP, SCTP"),
        ("--from 10.244.1.9 --to 10.96.0.10:0", "expected a port from 1 to 65535, got '0'"),
        ("--from 10.244.1.9 --to 10.96.0.10:http", "expected a port from 1 to 65535, got 'http'"),
        ("--from 10.244.1.9 --to 10.96.0:80", "'10.96.0' is no IP address"),
        ("--from 10.244.1.9 --to fd00::1:80", "an IPv6 address goes into brackets"),
        ("--from 10.244.1.9 --to [fd00::1]:80", "expected addresses of one IP family, got IPv4 and IPv6"),
        ("--from nobody --to web:80", "--from 'nobody': expected an IP address"),
        ("--from 10.244.1.9 --to web:80 --node n3", "--node n3: no such node; there is n1, n2"),
        (
            "--from 10.244.1.9 --to web:80 --proxy-mode ipvs --enable-dsr",
            "--enable-dsr is for mode kernelspace, not ipvs",
        ),
    ],
)
def test_what_cannot_be_traced(arguments: str, says: str) -> None:
    result = traced(*shlex.split(arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.parametrize(
    ("arguments", "to"),
    [
        ("--to web:80", "10.96.0.10:80/TCP"),
        ("--to WEB.default:http", "10.96.0.10:80/TCP"),
        ("--to web.default.svc:80/udp", "10.96.0.10:80/UDP"),
        ("--to web.default.svc.cluster.local:http", "10.96.0.10:80/TCP"),
        ("--to web.default.svc.cluster.local.:80", "10.96.0.10:80/TCP"),
        ("--to web.default.svc.k8s.test:80 --cluster-domain k8s.test.", "10.96.0.10:80/TCP"),
        ("--to web.default:80 -n shop", "10.96.0.10:80/TCP"),
        ("--to web-0.nginx:http -n shop", "10.244.1.31:8080/TCP"),
        ("--to web-0.nginx.shop:80", "10.244.1.31:80/TCP"),
        ("--to 10-244-2-31.nginx.shop.svc.cluster.local:http", "10.244.2.31:8080/TCP"),
    ],
)
def test_names_lead_where_a_resolver_of_the_namespace_leads(arguments: str, to: str) -> None:
    result = traced("--from", "10.244.1.9", *shlex.split(arguments))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"10.244.1.9 to {to}, ")


def test_a_name_leads_to_the_family_of_the_client() -> None:
    result = traced("--from", "fd00::9", "--to", "web-0.nginx.shop:http")
    assert result.stdout.startswith("fd00::9 to [fd00:10:244:1::31]:8080/TCP, ")


def test_the_ruleset_of_the_examples_means_what_the_trace_says() -> None:
    result = run("render", "--manifests", str(EXAMPLES))
    assert (result.exit_code, result.stderr.count("\n")) == (0, 1)
    assert result.stderr.startswith("Warning: without --config: clusterCIDR: is unset")
    assert result.stdout.count("\ntable ip kdns {") == result.stdout.count("\ntable ip6 kdns {") == 1
    ipv4, separator, ipv6 = result.stdout.partition("add table ip6 kdns")
    ends = nft_walk.walk(nft_walk.read(ipv4), nft_walk.At("192.0.2.7", "10.96.0.11", "tcp", 6379), ["10.244.0.1"])
    told = json.loads(
        run(
            "trace", "--manifests", str(EXAMPLES), "--from", "192.0.2.7", "--to", "redis-master:6379", "-o", "json"
        ).stdout
    )
    assert [end.daddr for end in ends] == [endpoint["address"] for endpoint in told["endpoints"]]
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
    assert "ip saddr 10.244.0.0/16 goto endpoints-tcp-" in text
    assert "192.0.2.2" in text


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--manifests", "/nowhere"), 2, "/nowhere: no such file or folder"),
        (("--manifests", "/nowhere", "--server", "http://127.0.0.1:1"), 2, "only one of"),
        (("--manifests", str(CLUSTER)), 2, "--node NAME is needed: there are n1, n2"),
        (
            ("--manifests", str(CLUSTER), "--node", "n1", "--enable-dsr"),
            2,
            "--enable-dsr is for mode kernelspace, not nftables",
        ),
        (("--manifests", str(CLUSTER), "--service-cidr", "10.0.0.0/33"), 2, "--service-cidr '10.0.0.0/33'"),
        (("--manifests", str(CLUSTER), "--service-cidr", "10.97.0.0/16"), 2, "trace_cluster.yaml:"),
        (("--config", "/nowhere"), 2, "/nowhere: cannot be read"),
        (("--server", "http://127.0.0.1:1"), 1, "Error: http://127.0.0.1:1: Connection refused\n"),
        ((), 2, "no kubeconfig at /nowhere"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], code: int, says: str) -> None:
    result = run("render", *arguments, KUBECONFIG="/nowhere")
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in result.stderr
