"""Facts about queries: who is asked for them, when, and what `kubernetes` says."""

from collections.abc import Mapping

import pytest
from cluster_objects import pod, state_of
from dns_chain import Behind, FakeWorld, read, response_at_once
from harness import server_of

from kdns.answers.chain import Plugin, Request, Serve, ServeResult, unhandled
from kdns.answers.response import Response
from kdns.cluster.objects import Pod
from kdns.dns.message import query
from kdns.dns.names import labels_of
from kdns.plugins.observers.metadata import Metadata
from kdns.plugins.sources.kubernetes.facts import client_facts, name_facts


class Knowing(Plugin):
    """Knows two facts, one of them under no label."""

    def __init__(self) -> None:
        self.calls = 0

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        return next(request)

    def metadata(self, request: Request) -> Mapping[str, str]:
        self.calls += 1
        return {"knowing/name": request.query.name, "name": "nobody's"}


@pytest.mark.parametrize(
    ("zone", "expected"),
    [("org.", {"knowing/name": "example.org."}), (".", {"knowing/name": "example.org."}), ("net.", {})],
)
def test_facts_are_had_when_they_are_wanted(zone: str, expected: dict[str, str]) -> None:
    knowing, behind, setup = Knowing(), Behind(lambda _request: Response()), FakeWorld()
    plugin = Metadata((zone,), setup)
    setup.built = (plugin, knowing, behind)
    plugin.serve(Request(read(query("example.org.", 1))), lambda request: behind.serve(request, unhandled))
    assert knowing.calls == 0
    (facts,) = (request.metadata for request in behind.requests)
    assert dict(facts) == expected == dict(facts)
    assert len(facts) == len(expected)
    assert knowing.calls == len(expected)


@pytest.mark.parametrize(
    ("below", "facts"),
    [
        ("a.b.svc", {"kind": "svc", "namespace": "b", "service": "a"}),
        ("b.svc", {"kind": "svc", "namespace": "b"}),
        ("_p._udp.a.b.svc", {"kind": "svc", "namespace": "b", "service": "a", "port-name": "p", "protocol": "udp"}),
        ("z.pin._zone.a.b.svc", {"kind": "svc", "namespace": "b", "service": "a", "zone": "z"}),
        ("x.y.z.a.b.svc", {"parse-error": "invalid query name"}),
        ("dns-version", {"parse-error": "invalid query name"}),
    ],
)
def test_the_parts_of_a_name(below: str, facts: dict[str, str]) -> None:
    found = name_facts(labels_of(below), is_multicluster=False)
    assert {label.removeprefix("kubernetes/"): value for label, value in found.items() if value} == facts


def test_the_first_of_pods_that_share_an_address() -> None:
    state = state_of(*(pod(name, "10.1.0.1", labels={"app": name}) for name in ("b", "a")))
    assert client_facts("10.1.0.1", state) == {
        "kubernetes/client-namespace": "shop",
        "kubernetes/client-pod-name": "a",
        "kubernetes/client-label/app": "a",
    }
    assert client_facts("10.1.0.2", state) == {}


def test_log_writes_facts() -> None:
    setup = FakeWorld(state=state_of(pod("web-0", "10.1.0.1")))
    setup.state.synced.add(Pod)
    facts = "{/kubernetes/namespace} {/kubernetes/client-pod-name} {/none/such}"
    server = server_of(f'metadata\nlog . "{facts}"\nkubernetes cluster.local', setup)
    packet = query("a.shop.svc.cluster.local.", 1)
    response_at_once(server, packet, ("10.1.0.1", 5)).sent(0.0)
    assert [line["line"] for line in setup.lines] == ["shop web-0 -"]
