"""Names of chains as kube-proxy makes them, and text of others that must stay one argument of one line."""

import shlex
from dataclasses import replace

import ipt_walk
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.cluster.objects import EndpointSlice, Object, Service
from kdns.net import FAMILIES, Family
from kdns.proxy.iptables.base_chains import JUMPS
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.iptables.tables import family_text
from kdns.proxy.plan.config import LocalPods
from kdns.proxy.plan.plan import PortName
from kdns.proxy.plan.planner import plan
from kdns.proxy.xtables.names import endpoint_chain, port_chains
from kdns.proxy.xtables.rules import COMMENT_BYTES, comment, host, interface, quoted, reject

CHAINS = [
    # as kube-proxy 1.36 names them
    (PortName("default", "one", "", "TCP"), "GC7YPRXAEGOKCMA3"),
    (PortName("default", "dns", "dns", "UDP"), "2MBSHUE5GJKPO227"),
    (PortName("default", "dns", "s", "SCTP"), "AUHYB6HWNJE3XFQ3"),
    (PortName("shop", "new", "w", "TCP"), "QM6NSBGWEXLJCLLV"),
]


@pytest.mark.parametrize(("name", "suffix"), CHAINS)
def test_the_four_chains_of_a_port_share_a_hash(name: PortName, suffix: str) -> None:
    assert port_chains(name) == tuple(f"KUBE-{kind}-{suffix}" for kind in ("SVC", "SVL", "EXT", "FW"))


@pytest.mark.parametrize(
    ("name", "endpoint", "chain"),
    [
        (PortName("default", "dns", "dns", "UDP"), "10.244.1.15:53", "KUBE-SEP-DVXINMMGYHOND2X6"),
        (PortName("default", "np-local", "", "TCP"), "[fd00:10:244:1::2a]:8080", "KUBE-SEP-XXD3SIJTMF5PLUZR"),
    ],
)
def test_an_endpoints_chain_is_named_for_port_and_endpoint(name: PortName, endpoint: str, chain: str) -> None:
    assert endpoint_chain(name, endpoint) == chain


def test_no_name_is_longer_than_iptables_takes() -> None:
    long = PortName("n" * 300, "s" * 300, "p" * 300, "SCTP")
    assert max(map(len, (*port_chains(long), endpoint_chain(long, "[::1]:1")))) <= 28


QUOTED = [
    ("shop/web:http", "shop/web:http"),
    ("a -> 10.0.0.1:80", "a -> 10.0.0.1:80"),
    ('"; -j ACCEPT', "?; -j ACCEPT"),
    ("two\nlines\r\t\0", "two?lines???"),
    ("back\\", "back?"),
    ("schön", "sch?n"),
    ("'x'", "'x'"),
    ("-j DROP", "-j DROP"),
]


@pytest.mark.parametrize(("text", "word"), QUOTED)
def test_text_of_others_is_one_argument(text: str, word: str) -> None:
    assert shlex.split(quoted(text)) == [word]
    assert shlex.split(comment(text)) == ["-m", "comment", "--comment", word]
    assert shlex.split(interface(text)) == ["-i", word]


def test_a_comment_is_cut_where_iptables_would_refuse_it() -> None:
    assert len(shlex.split(comment("x" * 1000))[-1]) == COMMENT_BYTES == 255
    assert comment("") == ""


def test_the_family_shows_in_masks_and_errors() -> None:
    assert (host("10.0.0.1"), host("fd00::1")) == ("10.0.0.1/32", "fd00::1/128")
    assert [reject(family).split("-")[-3] for family in FAMILIES] == ["with icmp", "with icmp6"]


def test_a_jump_is_one_rule_as_text_and_as_arguments() -> None:
    for jump in JUMPS:
        assert tuple(shlex.split(str(jump))) == jump.rule
        assert jump.rule[-2] == "-j"


texts = st.text(max_size=40)


@settings(max_examples=30)
@given(texts, texts.filter(bool), texts, texts)
@example('"\n-A INPUT -j ACCEPT', "\\", "COMMIT\n*filter", '"')
def test_no_name_adds_a_rule_or_ends_a_line(namespace: str, name: str, port: str, prefix: str) -> None:
    """Whatever an API lets in, the rules are those of tame names but for comments, interfaces and hashes."""
    wild = family_texts(namespace, name, port, prefix or "v")
    tame = family_texts("ns", "name", "port", "v")
    for family in FAMILIES:
        assert shape(wild[family]) == shape(tame[family])


def family_texts(namespace: str, name: str, port: str, prefix: str) -> dict[Family, str]:
    config = replace(CONFIG, mode=IPTABLES, node_port_addresses=(), local_pods=LocalPods(interface_prefix=prefix))
    made, *slices = (msgspec.to_builtins(each) for each in service(1, endpoints(1, "p1"), protocols=("TCP",)))
    made["metadata"] |= {"namespace": namespace, "name": name}
    made["spec"]["externalTrafficPolicy"], made["spec"]["ports"][0]["name"] = "Local", port
    for endpoint_slice in slices:
        endpoint_slice["metadata"] |= {"namespace": namespace, "labels": {"kubernetes.io/service-name": name}}
        endpoint_slice["ports"] = [{"name": port, "protocol": "TCP", "port": 8080}]
    objects: tuple[Object, ...] = (
        msgspec.convert(made, Service),
        *(msgspec.convert(endpoint_slice, EndpointSlice) for endpoint_slice in slices),
    )
    told = plan(state(objects), NODE_VIEW, config)
    return {family: family_text(told.of(family)) for family in FAMILIES}


def shape(text: str) -> list[tuple[str, ...]]:
    """The lines without comments, interfaces and hashes; the text must load."""
    ipt_walk.Kernel().restore(text)
    lines = []
    for line in text.split("\n"):
        words = shlex.split(line.lstrip("#:"))
        for option in ("--comment", "-i"):
            if option in words:
                del words[words.index(option) + 1]
        lines.append(tuple(word[:9] if word.startswith("KUBE-") else word for word in words))
    return sorted(lines)
