"""Facts about queries: who is asked for them, when, and what `kubernetes` says."""

from collections.abc import Mapping

import pytest
from dns_chain import FakeWorld, read, response_at_once, server_of

from kdns.answers.chain import Plugin, Request, Serve, ServeResult
from kdns.answers.response import Response
from kdns.cluster.objects import EndpointSlice, Meta, Namespace, Pod, PodMeta, PodStatus, Service
from kdns.cluster.state import State
from kdns.dns.message import query
from kdns.dns.names import labels_of
from kdns.plugins.observers.log import Log, LogConfig, compiled
from kdns.plugins.observers.metadata import Metadata
from kdns.plugins.sources.kubernetes.facts import client_facts, name_facts
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import Kubernetes


class Knowing(Plugin):
    """Knows two facts, one of them under no label."""

    def __init__(self) -> None:
        self.calls = 0

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        return next(request)

    def metadata(self, request: Request) -> Mapping[str, str]:
        self.calls += 1
        return {"knowing/name": request.query.name, "name": "nobody's"}


class Behind(Plugin):
    """Remembers the facts that come with a request."""

    def __init__(self) -> None:
        self.facts: Mapping[str, str] = {}

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        del next
        self.facts = request.metadata
        return Response()


@pytest.mark.parametrize(
    ("zone", "expected"),
    [("org.", {"knowing/name": "example.org."}), (".", {"knowing/name": "example.org."}), ("net.", {})],
)
def test_facts_are_had_when_they_are_wanted(zone: str, expected: dict[str, str]) -> None:
    knowing, behind, setup = Knowing(), Behind(), FakeWorld()
    plugin = Metadata((zone,), setup)
    setup.built = (plugin, knowing, behind)
    plugin.serve(Request(read(query("example.org.", 1))), lambda request: behind.serve(request, None))  # type: ignore[arg-type]
    assert knowing.calls == 0
    assert dict(behind.facts) == expected == dict(behind.facts)
    assert len(behind.facts) == len(expected)
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
    state = State()
    for name in ("b", "a"):
        state.upsert(Pod(PodMeta(name, "shop", labels={"app": name}), PodStatus("Running", "10.1.0.1")))
    assert client_facts("10.1.0.1", state) == {
        "kubernetes/client-namespace": "shop",
        "kubernetes/client-pod-name": "a",
        "kubernetes/client-label/app": "a",
    }
    assert client_facts("10.1.0.2", state) == {}


def test_log_writes_facts() -> None:
    setup, state = FakeWorld(), State()
    state.upsert(Pod(PodMeta("web-0", "shop"), PodStatus("Running", "10.1.0.1")))
    state.upsert(Namespace(Meta("shop")))
    state.synced |= {Service, Namespace, EndpointSlice, Pod}
    plugins = (
        Metadata((".",), setup),
        Log(
            (LogConfig((".",), compiled("{/kubernetes/namespace} {/kubernetes/client-pod-name} {/none/such}")),), setup
        ),
        Kubernetes(state, Options(), setup),
    )
    setup.built = plugins
    server = server_of(*plugins)
    packet = query("a.shop.svc.cluster.local.", 1)
    response_at_once(server, packet, ("10.1.0.1", 5)).sent(0.0)
    assert [line["line"] for line in setup.lines] == ["shop web-0 -"]
