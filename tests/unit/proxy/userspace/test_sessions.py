"""Whose turn it is: scripts of clients and times, and the endpoints that they get."""

from collections.abc import Sequence
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdns.proxy.plan.branches import Branch, Branches, Client, Verdict
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.endpoints import EndpointLists, ServiceEndpoint
from kdns.proxy.plan.plan import Front, FrontKey, FrontKind, PortName, PortPlan
from kdns.proxy.plan.service_ports import empty_plan
from kdns.proxy.userspace import sessions
from kdns.proxy.userspace.mode import USERSPACE
from kdns.proxy.userspace.sessions import PortState, Session, Sessions

A, B, C = (ServiceEndpoint(f"10.1.0.{n}", 80) for n in (1, 2, 3))
NAMED = {"a": A, "b": B, "c": C}
CLIENTS = {name: ip_address(f"192.0.2.{number}") for number, name in enumerate("wxyz")}
PLAN = empty_plan("IPv4", ProxyConfig(USERSPACE), NodeView())
WEB = PortName("shop", "web", "", "TCP")


def choose(
    state: Sessions,
    endpoints: Sequence[ServiceEndpoint],
    client: str,
    now_s: float,
    *,
    affinity_s: int = 0,
    anew: bool = False,
    name: PortName = WEB,
) -> ServiceEndpoint | None:
    branch = Branch(Client.ANY, Verdict.CLUSTER)
    branches, lists = Branches((branch,)), EndpointLists(tuple(endpoints))
    port = PortPlan(name, branches, branches, branches, lists, (), affinity_s=affinity_s)
    front = Front(FrontKey("10.96.0.1", "TCP", 80), FrontKind.CLUSTER_IP, port)
    shared = state.ports.setdefault(name, PortState())
    return state.next_endpoint(Session(PLAN, front, CLIENTS[client], branch, shared, is_retry=anew), now_s)


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
    made = Sessions()
    for number, step in enumerate(script.split()):
        who, rest = step.split(":")
        client, now = who.split("@")
        anew = "!" in rest
        endpoints, wanted = rest.split("!" if anew else "=")
        got = choose(
            made, [NAMED[endpoint] for endpoint in endpoints], client, float(now), affinity_s=affinity_s, anew=anew
        )
        assert got == NAMED[wanted], (name, number, step)


def test_service_ports_have_turns_of_their_own_and_begin_where_it_is_drawn() -> None:
    made = Sessions(draw=lambda count: count - 1)
    names = [WEB._replace(service=service) for service in ("web", "dns", "web")]
    assert [choose(made, (A, B, C), "x", 0, name=name) for name in names] == [C, C, A]


def test_clients_are_forgotten_when_their_time_is_over_and_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "MAX_CLIENTS", 3)
    made = Sessions()

    def known() -> list[str]:
        return [name for client in made.ports[WEB].clients for name in CLIENTS if client == str(CLIENTS[name])]

    for client in "wxyz":  # w is one too many
        choose(made, (A, B, C), client, 0, affinity_s=10)
    assert choose(made, (A, B, C), "z", 1, affinity_s=10) == A
    choose(made, (A, B, C), "x", 5, affinity_s=10)
    made.sweep(10.5)
    assert known() == ["z", "x"]
    made.sweep(15)
    assert known() == []


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.floats(0, 9), st.booleans()), max_size=60))
def test_turns_are_even_and_affinity_holds(steps: list[tuple[str, float, bool]]) -> None:
    """Without failures a client has one endpoint within its time; every choice anew goes to the next in turn."""
    made, kept, drawn = Sessions(), dict[str, ServiceEndpoint](), list[ServiceEndpoint]()
    now_s = 0.0
    for client, wait_s, anew in steps:
        now_s += wait_s
        got = choose(made, (A, B, C), client, now_s, affinity_s=1000, anew=anew)
        assert got
        if anew or client not in kept:
            drawn.append(got)
        else:
            assert got == kept[client]
        kept[client] = got
    assert drawn == [(A, B, C)[number % 3] for number in range(len(drawn))]
