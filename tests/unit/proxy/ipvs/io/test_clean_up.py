"""What is removed of mode ipvs, and what stays, against a kernel of the test."""

import asyncio
import socket
from pathlib import Path

import pytest
from kernel_of_test import LINK, KernelOfTest, ProgramsOfTest, replace_kernel

from kdns.netlink.conntrack import Flow
from kdns.netlink.io import ipvs as netlink_ipvs
from kdns.netlink.ipset import SetType
from kdns.netlink.ipvs import Destination, ServerOptions, VirtualServerKey
from kdns.proxy.ipvs import draining
from kdns.proxy.ipvs.io import clean_up, link
from kdns.proxy.ipvs.io.clean_up import IpvsPart, remove_ipvs, stop_draining
from kdns.proxy.ipvs.settings import IpvsSettings
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Footprint

WEB = VirtualServerKey("10.96.0.1", 80, "TCP")
DNS = VirtualServerKey("10.96.0.1", 53, "UDP")
SIGNALLING = VirtualServerKey("10.96.0.1", 2905, "SCTP")
NODE_PORT = VirtualServerKey("192.0.2.1", 30001, "TCP")
FOREIGN = VirtualServerKey("192.0.2.1", 8000, "TCP")
EXCLUDED = VirtualServerKey("10.98.0.1", 80, "TCP")
ALL = (WEB, DNS, NODE_PORT, FOREIGN, EXCLUDED)
POD = ("10.1.0.2", 8080)
SETTINGS = Settings().with_section(IpvsSettings(exclude_cidrs=("10.98.0.0/16",)))
OTHER_MODE = Footprint(("another",))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> KernelOfTest:
    made = KernelOfTest(dict.fromkeys(ALL, ServerOptions("rr")), has_link=True)
    made.held = {key: {POD: Destination(1, 0, 0, masquerades=True)} for key in ALL}
    made.addresses = {"10.96.0.1", "10.96.0.2", "10.98.0.1"}
    made.sets = {
        "KUBE-CLUSTER-IP": (SetType("hash:ip,port", "IPv4"), {"10.96.0.1,tcp:80"}),
        "KUBE-NODE-PORT-TCP": (SetType("bitmap:port", "IPv4", 0), {"30001"}),
        "KUBE-6-NODE-PORT-SCTP-HASH": (SetType("hash:ip,port", "IPv6"), {"2001:db8::1,sctp:30002"}),
        "somebody": (SetType("hash:ip", "IPv4"), {"192.0.2.7"}),
    }
    replace_kernel(monkeypatch, made, ProgramsOfTest(made))
    monkeypatch.setattr(clean_up, "POLL_S", 0.001)
    monkeypatch.setattr(clean_up, "_IP_SET", tmp_path)
    monkeypatch.setattr(netlink_ipvs, "PROC", tmp_path)

    def index(_name: str) -> int:
        if not made.has_link:
            raise OSError("no such link")
        return LINK

    def remove() -> bool:
        was_there, made.has_link = made.has_link, False
        made.addresses.clear()
        return was_there

    monkeypatch.setattr(socket, "if_nametoindex", index)
    monkeypatch.setattr(link, "remove", remove)
    return made


@pytest.mark.parametrize("kept", [Footprint((IpvsPart(),)), Footprint(keep_kube_proxy=True)])
async def test_what_is_in_use_or_may_be_kube_proxys_stays(kernel: KernelOfTest, kept: Footprint) -> None:
    assert await remove_ipvs(SETTINGS, kept) == []
    assert set(kernel.options) == set(ALL)


async def test_everything_is_removed_at_once_where_nothing_follows(kernel: KernelOfTest) -> None:
    kernel.connect(WEB, POD, 1)
    assert await remove_ipvs(SETTINGS, Footprint()) == [
        "virtual server 10.96.0.1:80/TCP",
        "virtual server 10.96.0.1:53/UDP",
        "virtual server 192.0.2.1:30001/TCP",
        "link kube-ipvs0",
        "set KUBE-CLUSTER-IP",
        "set KUBE-NODE-PORT-TCP",
        "set KUBE-6-NODE-PORT-SCTP-HASH",
    ]
    assert set(kernel.options) == {FOREIGN, EXCLUDED}
    assert set(kernel.sets) == {"somebody"}
    assert await remove_ipvs(SETTINGS, Footprint()) == []


async def test_virtual_servers_at_the_nodes_own_addresses(kernel: KernelOfTest) -> None:
    """An external IP that is the node's, which is in a set, and one that has left, of which its weights tell."""
    external, left, odd = (
        VirtualServerKey("192.0.2.1", 80, "TCP"),
        VirtualServerKey("192.0.2.1", 81, "TCP"),
        VirtualServerKey("192.0.2.1", 82, "TCP"),
    )
    weights = {external: 1, left: 0, odd: 0}
    kernel.options |= dict.fromkeys(weights, ServerOptions("rr"))
    for key, weight in weights.items():
        kernel.held[key] = {POD: Destination(weight, 0, 1, masquerades=key != odd)}
    kernel.sets["KUBE-EXTERNAL-IP"] = SetType("hash:ip,port", "IPv4"), {"192.0.2.1,tcp:80"}
    kernel.sets["KUBE-LOAD-BALANCER"] = SetType("hash:ip", "IPv4"), {"192.0.2.1"}
    kernel.sets["KUBE-CLUSTER-IP-NEW"] = SetType("hash:ip,port", "IPv4"), set()
    await remove_ipvs(SETTINGS, Footprint())
    assert set(kernel.options) == {FOREIGN, EXCLUDED, odd}
    assert set(kernel.sets) == {"somebody"}


async def test_sets_that_rules_use_stay(kernel: KernelOfTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "destroy", lambda name: name != "KUBE-CLUSTER-IP")
    assert "set KUBE-CLUSTER-IP" not in await remove_ipvs(SETTINGS, Footprint())


async def test_connections_end_first_where_another_mode_follows(
    kernel: KernelOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = Flow(("10.96.0.1", 53), ("10.1.0.2", 53), b""), Flow(("10.96.0.9", 53), ("10.1.0.2", 53), b"")
    deleted: list[Flow] = []

    def delete(_family: str, flows: list[Flow]) -> None:
        """A packet of a flow whose virtual server has gone is dropped: the node's own sendto(2) fails with EPERM."""
        assert DNS in kernel.options
        deleted.extend(flows)

    monkeypatch.setattr(
        clean_up,
        "udp_flows",
        lambda family, is_wanted: list(filter(is_wanted, [own, other] if family == "IPv4" else [])),
    )
    monkeypatch.setattr(clean_up, "delete_flows", delete)
    kernel.connect(WEB, POD, 1)
    assert await remove_ipvs(SETTINGS, OTHER_MODE) == []
    assert kernel.addresses == {"10.96.0.1"}
    assert set(kernel.options) == {WEB, FOREIGN, EXCLUDED}
    assert kernel.held[WEB][POD].weight == 0
    assert kernel.held[FOREIGN][POD].weight == 1
    assert deleted == [own]
    kernel.connect(WEB, POD, 0)
    await gone(kernel)
    assert set(kernel.options) == {FOREIGN, EXCLUDED}


async def gone(kernel: KernelOfTest) -> None:
    """The link is removed, which comes last but for the sets."""
    async with asyncio.timeout(60):
        while kernel.has_link or "KUBE-CLUSTER-IP" in kernel.sets:  # noqa: ASYNC110 - the kernel of the test tells nobody
            await asyncio.sleep(0.001)


async def test_mode_ipvs_takes_over_what_still_has_connections(kernel: KernelOfTest) -> None:
    kernel.connect(WEB, POD, 1)
    assert await remove_ipvs(SETTINGS, OTHER_MODE) == []
    await stop_draining()
    kernel.connect(WEB, POD, 0)
    await asyncio.sleep(0.02)  # whoever waited would see it now
    assert WEB in kernel.options
    assert kernel.has_link
    assert "virtual server 10.96.0.1:80/TCP" in await remove_ipvs(SETTINGS, Footprint())


async def test_connections_are_not_waited_for_without_end(
    kernel: KernelOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "DRAIN_S", 0.0)
    kernel.connect(WEB, POD, 1)
    await remove_ipvs(SETTINGS, OTHER_MODE)
    await gone(kernel)
    assert set(kernel.options) == {FOREIGN, EXCLUDED}


@pytest.mark.parametrize("key", [WEB, SIGNALLING])
async def test_whatever_has_an_end_is_waited_for(kernel: KernelOfTest, key: VirtualServerKey) -> None:
    kernel.options[key] = ServerOptions("rr")
    kernel.held[key] = {POD: Destination(1, 1, 0, masquerades=True)}
    assert await remove_ipvs(SETTINGS, OTHER_MODE) == []
    assert set(kernel.options) == {key, FOREIGN, EXCLUDED}
    kernel.connect(key, POD, 0)
    await gone(kernel)
