"""Objects of a table as text, and that no text of the API or of settings becomes rules."""

import re
import struct
from dataclasses import replace

import nft_walk
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rendering import rendered
from small_cluster import CONFIG, NODE_VIEW

from kdns.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import State
from kdns.proxy.nftables.elements import element_requests
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.nftables.objects import (
    NAME_BYTES,
    SOURCE,
    Chain,
    ElementKey,
    Number,
    Set,
    Transaction,
    checked_name,
    commands,
    quoted,
)
from kdns.proxy.nftables.sets import ADDRESSES
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.config import LocalPods
from kdns.proxy.plan.planner import Planner, plan
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.userspace.mode import USERSPACE

EVIL = (
    'x" : drop }\nadd table ip evil\n#',
    "x\nflush ruleset",
    'x"; flush ruleset; "',
    "x }, 10.0.0.1 . tcp . 80 : accept # ",
    "x\r\nlist ruleset\u2028\x00",
    "Ümläut" * 40,
    '$(reboot) `reboot` \\" %s {0}',
)
"""Names that an API which does not validate may let in."""


@pytest.mark.parametrize("name", ["", "a b", "a\n", "-a", "a;b", "a" * (NAME_BYTES + 1)])
def test_names_that_are_none(name: str) -> None:
    for make in (checked_name, Chain, lambda text: Set(text, (SOURCE,))):
        with pytest.raises(ValueError, match="name of an nftables object"):
            make(name)


@given(st.text(max_size=300))
def test_any_text_stays_one_word_of_one_line(text: str) -> None:
    assert quoted(text).count('"') == 2
    assert quoted(text).isascii()
    assert quoted(text).isprintable()


def named(name: str, place: str) -> State:
    """Services with affinity, one of them without endpoints, where a name of the one kind is this."""
    names = {"service": "web", "namespace": "shop", "port": "http", "protocol": "TCP", place: name}
    made = State()
    for number, service in enumerate((names["service"], f"{names['service']}-2"), 1):
        spec = ServiceSpec(
            "NodePort",
            cluster_ip=f"10.96.0.{number}",
            ports=(ServicePort(80, names["port"], names["protocol"], 30000 + number),),
            session_affinity="ClientIP",
            external_traffic_policy="Local",
        )
        made.upsert(Service(ServiceMeta(service, names["namespace"]), spec))
    meta = SliceMeta("s", names["namespace"], SliceLabels(names["service"]))
    ports = (EndpointPort(names["port"], 8080, names["protocol"]),)
    made.upsert(EndpointSlice(meta, "IPv4", (Endpoint(("10.1.0.2",), node_name="here"),), ports))
    return made


def skeleton(text: str) -> list[tuple[str, ...]]:
    """The first words of each command and line: what the text does, whatever the names in it."""
    return [tuple(line.split()[:2]) for line in text.splitlines()]


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("mode", [NFTABLES, USERSPACE], ids=lambda mode: mode.name)
@pytest.mark.parametrize("place", ["service", "namespace", "port"])
def test_names_of_the_api_do_not_become_rules(place: str, mode: Semantics, name: str) -> None:
    config = replace(CONFIG, mode=mode)
    evil, harmless = (rendered(plan(named(each, place), NODE_VIEW, config)) for each in (name, "harmless"))
    assert skeleton(evil) == skeleton(harmless)
    assert evil.isascii()
    for family in ("ip", "ip6"):
        walked = [nft_walk.read(family_plan(text, family)) for text in (evil, harmless)]
        assert len(walked[0].chains) == len(walked[1].chains)
        assert {each: len(found) for each, found in walked[0].elements.items()} == {
            each: len(found) for each, found in walked[1].elements.items()
        }


def family_plan(text: str, family: str) -> str:
    """One family's table of both, without the comments, which nft_walk does not read."""
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    text = re.sub(r' comment "[^"\n]*"', "", text)
    first, _, second = text.partition("add table ip6 kdns\n")
    return first.strip() if family == "ip" else f"add table ip6 kdns\n{second}"


@pytest.mark.parametrize("name", EVIL)
def test_a_change_is_as_harmless_as_a_start(name: str) -> None:
    texts = []
    for each in (name, "harmless"):
        whole = named(each, "service")
        planner = Planner(State(), NODE_VIEW, CONFIG)
        planner.state = whole
        table = Table(planner.plan.ipv4)
        texts.append("\n".join(commands(table.follow(planner.plan.ipv4, planner.update(whole.services)["IPv4"]))))
    assert skeleton(texts[0]) == skeleton(texts[1])
    assert "add chain" in texts[0]


@pytest.mark.parametrize("name", EVIL)
def test_protocols_of_the_api_do_not_become_rules(name: str) -> None:
    assert not plan(named(name, "protocol"), NODE_VIEW, CONFIG).ipv4.fronts


@pytest.mark.parametrize("name", EVIL)
def test_interfaces_of_settings_do_not_become_rules(name: str) -> None:
    for pods, harmless_pods in (
        (LocalPods(bridge=name), LocalPods(bridge="harmless")),
        (LocalPods(interface_prefix=name), LocalPods(interface_prefix="harmless")),
    ):
        evil, harmless = (
            rendered(plan(named("web", "service"), NODE_VIEW, replace(CONFIG, local_pods=each)))
            for each in (pods, harmless_pods)
        )
        assert [words[:1] for words in skeleton(evil)] == [words[:1] for words in skeleton(harmless)]
        assert all(line.count('"') in {0, 2} for line in evil.splitlines() if "iifname" in line)


MAP = ADDRESSES.no_endpoints


@pytest.mark.parametrize(
    "key",
    [
        ("10.96.0.1", "tcp", 99999),
        ("10.96.0.1", "tcp", -1),
        ("10.96.0.1", "igmp", 80),
        ("fd00::1", "tcp", 80),
        ("no address", "tcp", 80),
        ("10.96.1", "tcp", 80),
        ("10.096.0.1", "tcp", 80),
        ("10.96.0.1", "tcp"),
        ("10.96.0.1", "tcp", 80, 80),
    ],
)
def test_impossible_elements(key: ElementKey) -> None:
    change = Transaction("IPv4", add={MAP.name: {("10.96.0.2", "tcp", 80): Number(1, "a"), key: Number(1, "a")}})
    with pytest.raises((KeyError, ValueError, struct.error)):
        list(element_requests(change, {MAP.name: MAP}))
