"""Whose turn it is: scripts of clients and times, and the endpoints that they get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdns.proxy.plan.branches import Branch, Branches, Client, Verdict
from kdns.proxy.plan.endpoints import EndpointLists, ServiceEndpoint
from kdns.proxy.plan.plan import PortName, PortPlan
from kdns.proxy.userspace import balancer
from kdns.proxy.userspace.balancer import Balancer

A, B, C = (ServiceEndpoint(f"10.1.0.{n}", 80) for n in (1, 2, 3))
NAMED = {"a": A, "b": B, "c": C}


def port(affinity_s: int = 0, name: str = "web") -> PortPlan:
    branches = Branches((Branch(Client.ANY, Verdict.CLUSTER),))
    named = PortName("shop", name, "", "TCP")
    return PortPlan(named, branches, branches, branches, EndpointLists(), (), affinity_s=affinity_s)


SCRIPTS = [
    # affinity, then "client@time:endpoints=chosen", an endpoint in capitals has failed before
    ("in turn", 0, "x@0:abc=a x@0:abc=b y@0:abc=c x@0:abc=a"),
    ("one more endpoint", 0, "x@0:ab=a x@0:ab=b x@0:abc=c x@0:abc=a"),
    ("one endpoint fewer", 0, "x@0:abc=a x@0:abc=b x@0:ab=a x@0:ab=b"),
    ("kept", 10, "x@0:abc=a y@0:abc=b x@5:abc=a x@14:abc=a y@9:abc=b"),
    ("over", 10, "x@0:abc=a x@10:abc=b x@19:abc=b x@29:abc=c"),
    ("gone", 10, "x@0:abc=a x@1:bc=c x@2:abc=c"),
    ("failed", 10, "x@0:abc=a x@1:abc!b x@2:abc=b y@2:abc=c"),
    ("failed twice", 10, "x@0:abc=a x@1:abc!b x@1:abc!c x@2:abc=c"),
]


@pytest.mark.parametrize(("name", "affinity_s", "script"), SCRIPTS)
def test_scripts(name: str, affinity_s: int, script: str) -> None:
    made = Balancer()
    for number, step in enumerate(script.split()):
        who, rest = step.split(":")
        client, now = who.split("@")
        anew = "!" in rest
        endpoints, wanted = rest.split("!" if anew else "=")
        got = made.choose(port(affinity_s), [NAMED[each] for each in endpoints], client, float(now), anew=anew)
        assert got == NAMED[wanted], (name, number, step)


def test_service_ports_have_turns_of_their_own_and_begin_where_it_is_drawn() -> None:
    made = Balancer(draw=lambda count: count - 1)
    assert [made.choose(port(name=name), (A, B, C), "x", 0) for name in ("web", "dns", "web")] == [C, C, A]
    made.forget(port().name)
    assert made.choose(port(), (A, B, C), "x", 0) == C


def test_clients_are_forgotten_when_their_time_is_over_and_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(balancer, "MAX_CLIENTS", 3)
    made = Balancer()
    for client in "wxyz":  # w is one too many
        made.choose(port(10), (A, B, C), client, 0)
    assert made.choose(port(10), (A, B, C), "z", 1) == A
    made.choose(port(10), (A, B, C), "x", 5)
    made.sweep(10.5)
    assert made.clients(port().name) == ["z", "x"]
    made.sweep(15)
    assert made.clients(port().name) == []


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.floats(0, 9), st.booleans()), max_size=60))
def test_turns_are_even_and_affinity_holds(steps: list[tuple[str, float, bool]]) -> None:
    """Without failures a client has one endpoint within its time; every choice anew goes to the next in turn."""
    made, kept, drawn = Balancer(), dict[str, ServiceEndpoint](), list[ServiceEndpoint]()
    now_s = 0.0
    for client, wait_s, anew in steps:
        now_s += wait_s
        got = made.choose(port(1000), (A, B, C), client, now_s, anew=anew)
        if anew or client not in kept:
            drawn.append(got)
        else:
            assert got == kept[client]
        kept[client] = got
    assert drawn == [(A, B, C)[number % 3] for number in range(len(drawn))]
