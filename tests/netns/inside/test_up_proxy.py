"""`kdns up --proxy-mode MODE`: virtual IPs beside the control plane, which go when it goes."""

import asyncio
import os
import pty
import subprocess
from pathlib import Path

import pytest
from node_process import DEADLINE_S, KDNS, Api, fetched, start, until
from world import World


@pytest.mark.parametrize(
    "mode", ["nftables", *(pytest.param(of, marks=pytest.mark.release) for of in ("userspace", "iptables"))]
)
def test_virtual_ips_come_and_go_with_the_cluster(
    world: World, loop: asyncio.AbstractEventLoop, tmp_path: Path, mode: str
) -> None:
    arguments = ("--dns", "127.0.0.1:0", "--api", "127.0.0.1:0", "--kubeconfig", "kc")
    cluster = start("up", "--proxy-mode", mode, *arguments, folder=tmp_path)
    cluster.wait_for("ready")
    assert cluster.wait_for("proxy").split() == ["proxy", mode]
    api = Api(cluster.wait_for("api ").split()[1])
    made = api.service("web", type="NodePort")
    api.endpoints("web", "10.1.0.2")
    node_port = made["spec"]["ports"][0]["nodePort"]
    node_address = api.ask("GET", "/api/v1/nodes/kdns")["status"]["addresses"][0]["address"]
    assert node_address == "192.0.2.1"
    for source, destination, port in (
        ("10.1.1.2", made["spec"]["clusterIP"], 80),
        ("192.0.2.1", made["spec"]["clusterIP"], 80),
        ("192.0.2.100", "192.0.2.9", node_port),
        ("192.0.2.100", node_address, node_port),
    ):

        async def backend(source: str = source, destination: str = destination, port: int = port) -> str:
            return (await world.probe(source, destination, "TCP", port)).backend

        loop.run_until_complete(until("10.1.0.2", backend))
    service_page = f"{cluster.wait_for('status ').split()[1]}/service?namespace=default&name=web"
    assert "</th><td>cluster IP</td><td>" in fetched(service_page)[1]
    assert_node_follows_addresses(loop, api)
    assert cluster.stop() == 0
    left = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    assert not [name for name in ("kdns", "KUBE-") if name in left]


def assert_node_follows_addresses(loop: asyncio.AbstractEventLoop, api: Api) -> None:
    """Without a default route, a machine's Node has its lowest address."""

    async def reported() -> str:
        return str(api.ask("GET", "/api/v1/nodes/kdns")["status"]["addresses"][0]["address"])

    for verb, wanted in (("add", "10.0.0.1"), ("del", "192.0.2.1")):
        subprocess.run(["ip", "address", verb, "10.0.0.1/32", "dev", "lo"], check=True)
        loop.run_until_complete(until(wanted, reported))


def test_they_go_with_the_terminal(world: World, tmp_path: Path) -> None:
    """SIGHUP, with nothing left to write to."""
    assert world
    terminal, end = pty.openpty()
    command = [
        "setsid",
        "--ctty",
        KDNS,
        "up",
        "--proxy-mode",
        "nftables",
        "--dns",
        "127.0.0.1:0",
        "--api",
        "127.0.0.1:0",
    ]
    process = subprocess.Popen([*command, "--kubeconfig", "kc"], stdin=end, stdout=end, stderr=end, cwd=tmp_path)
    os.close(end)
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        output = b""
        while b"ready" not in output:
            output += screen.read(1024)
    assert process.wait(DEADLINE_S) == 0
    left = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    assert "kdns" not in left
