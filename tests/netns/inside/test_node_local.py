"""`kdns serve --local-ip`: Pods ask it at addresses that only their node has, and none of it is tracked."""

import asyncio
import socket
import subprocess
import time
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml
from decoded_message import decode
from kdns_process import ROOT
from node_process import start
from real_servers import resolver
from world import NODE, PODS, World

from kdns.dns.message import query
from kdns.netlink.io.addresses import node_addresses
from kdns.node_local.io.upkeep import CHECK_S

DEADLINE_S = 30.0
"""Shorter than CHECK_S: what comes back only at the next look is late."""
ADDRESSES = ("169.254.20.10", "10.96.0.10")
COREFILE = f".:53 {{\n    bind {' '.join(ADDRESSES)}\n    whoami\n}}\n"
TRACKING = (
    "table ip seen { chain input { type filter hook input priority 0; udp dport 53 ct state untracked counter; }; }"
)
"""Has the kernel track connections, and counts queries that are not."""


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def ask(world: World, address: str, name: str = "who.example.") -> str:
    """The rcode that a Pod gets from an address of its node."""
    client = world.socket("pod1", PODS["pod1"][0], socket.SOCK_DGRAM)
    client.settimeout(30)
    with client:
        client.connect((address, 53))
        client.send(query(name, 1))
        return decode(client.recv(512)).rcode


def test_pods_ask_the_cache_of_their_node(world: World, tmp_path: Path) -> None:
    (tmp_path / "Corefile").write_text(COREFILE)
    run("nft", TRACKING)
    cache = start("serve", "--conf", "Corefile", "--local-ip", ",".join(ADDRESSES), folder=tmp_path)
    cache.wait_for("ready")
    assert [ask(world, address) for address in ADDRESSES] == ["NOERROR", "NOERROR"]
    own = asyncio.run(node_addresses())
    assert ip_address(NODE[0]) in own
    assert not {*map(ip_address, ADDRESSES)} & {*own}, "no cluster IP is an address of the node, and that is one"
    assert "counter packets 2 " in run("nft", "list", "table", "ip", "seen")
    assert "dport=53 " not in Path("/proc/net/nf_conntrack").read_text()
    assert cache.stop() == 0
    assert "kdns-node-local" not in run("nft", "list", "tables")
    assert "nodelocaldns" not in run("ip", "link")


def test_addresses_that_are_taken_away_come_back_at_once(world: World, tmp_path: Path) -> None:
    """And are not waited for until the next look: that is long after the deadline."""
    assert CHECK_S > DEADLINE_S
    (tmp_path / "Corefile").write_text(COREFILE)
    cache = start("serve", "--conf", "Corefile", "--local-ip", ",".join(ADDRESSES), folder=tmp_path)
    cache.wait_for("ready")
    for command in (f"address delete {ADDRESSES[0]}/32 dev nodelocaldns", "link delete nodelocaldns"):
        run("ip", *command.split())
        until_s = time.monotonic() + DEADLINE_S
        while not all(each in run("ip", "-brief", "address", "show") for each in ADDRESSES):
            assert time.monotonic() < until_s, command
            time.sleep(0.05)
        assert [ask(world, address) for address in ADDRESSES] == ["NOERROR", "NOERROR"]
    assert cache.stop() == 0


@pytest.mark.usefixtures("world")
def test_a_second_one_that_cannot_listen_leaves_the_first_ones_interface_and_rules(tmp_path: Path) -> None:
    (tmp_path / "Corefile").write_text(COREFILE)
    options = ("serve", "--conf", "Corefile", "--local-ip", ",".join(ADDRESSES))
    cache = start(*options, folder=tmp_path)
    cache.wait_for("ready")
    had = run("nft", "list", "tables"), run("ip", "-brief", "address")
    second = start(*options, folder=tmp_path)
    second.wait_for("cannot listen on")
    assert second.ended() == 1
    assert (run("nft", "list", "tables"), run("ip", "-brief", "address")) == had
    assert cache.stop() == 0
    assert "nodelocaldns" not in run("ip", "link")


def test_the_corefile_of_the_manifest_serves_the_clusters_names(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = yaml.safe_load((ROOT / "deploy" / "node-local" / "configmap.yaml").read_text())
    (tmp_path / "Corefile").write_text(manifest["data"]["Corefile"])
    monkeypatch.setenv("KUBE_DNS_UPSTREAM_SERVICE_HOST", NODE[0])
    options = ("-localip", ",".join(ADDRESSES), "-upstreamsvc", "kube-dns-upstream")
    with resolver(tmp_path, "who.cluster.local. 30 IN A 10.96.0.77", host=NODE[0], port=53):
        cache = start("serve", "-conf", "Corefile", *options, folder=tmp_path)
        cache.wait_for("ready")
        assert [ask(world, address, "who.cluster.local.") for address in ADDRESSES] == ["NOERROR", "NOERROR"]
        assert ask(world, ADDRESSES[0], "other.cluster.local.") == "NXDOMAIN"
    assert ask(world, ADDRESSES[1], "who.cluster.local.") == "NOERROR"  # the cluster's DNS server is away
    assert cache.stop() == 0


@pytest.mark.usefixtures("world")
def test_what_is_missing_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "Corefile").write_text(".:53 {\n    bind 192.0.2.77\n    whoami\n}\n")
    cache = start("serve", "--conf", "Corefile", "--local-ip", ADDRESSES[0], folder=tmp_path)
    cache.wait_for("cannot listen on 192.0.2.77:53")
    assert cache.ended() == 1
    assert "kdns-node-local" not in run("nft", "list", "tables")
    assert "nodelocaldns" not in run("ip", "link")
