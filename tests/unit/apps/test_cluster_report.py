"""What `kdns check` says of a cluster that does not show everything."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest

from kdns.apps import check_cluster
from kdns.apps.sources.source import ObjectSource
from kdns.diagnosis.problem import WARNING, Problem
from kdns.errors import ApiServerError

SERVICE = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"clusterIP": "10.96.0.7", "selector": {"a": "b"}}}
PAGES: Mapping[str, Any] = {
    "/api/v1/services": {"kind": "ServiceList", "apiVersion": "v1", "metadata": {}, "items": [SERVICE]},
    "/api/v1/nodes": {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": []},
    "/api/v1/namespaces": {"kind": "NamespaceList", "apiVersion": "v1", "metadata": {}, "items": []},
    "/api/v1/pods": 403,
    "/api/v1/namespaces/kube-system/configmaps": 403,
}


class Refusing:
    """A connection to an API that lacks most kinds, and forbids some."""

    server = "http://api"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    @asynccontextmanager
    async def stream(self, path: str, _params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        page = self.pages.get(path, 404)
        if isinstance(page, int):
            raise ApiServerError(self.server, "refused", page)

        async def chunks() -> AsyncIterator[bytes]:
            yield json.dumps(page).encode()

        yield chunks()

    def __init__(self, pages: Mapping[str, Any]) -> None:
        self.pages = pages


def reported(pages: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> check_cluster.Report:
    monkeypatch.setattr(check_cluster, "api_connection", lambda _source: Refusing(pages))
    return asyncio.run(check_cluster.cluster_report(ObjectSource(), dns_port=53))


def test_forbidden_kinds_are_named_and_nothing_is_said_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": {}, "items": []}
    report = reported({**PAGES, "/apis/discovery.k8s.io/v1/endpointslices": slices}, monkeypatch)
    assert report.not_looked_at == ["pods (forbidden)", "configmaps (forbidden)"]
    assert report.looked_at["services"] == 1
    assert [(problem.severity, problem.cause) for problem in report.problems] == [(WARNING, "no-endpoints")]


def test_a_server_without_a_kind_that_every_cluster_has_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ApiServerError, match="404 refused"):
        reported(PAGES, monkeypatch)


def of_corefile(text: str, monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """The problems of a Corefile that CoreDNS and a node-local cache have."""
    dns = {"metadata": {"name": "kube-dns", "namespace": "kube-system"}, "spec": {"clusterIP": "10.96.0.10"}}
    names = "coredns", "node-local-dns"
    maps = [{"metadata": {"name": name, "namespace": "kube-system"}, "data": {"Corefile": text}} for name in names]
    pages = {
        "/api/v1/services": {**PAGES["/api/v1/services"], "items": [dns]},
        "/apis/discovery.k8s.io/v1/endpointslices": {
            "kind": "EndpointSliceList",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {},
            "items": [],
        },
        "/api/v1/namespaces/kube-system/configmaps": {
            "kind": "ConfigMapList",
            "apiVersion": "v1",
            "metadata": {},
            "items": maps,
        },
    }
    return [problem for problem in reported({**PAGES, **pages}, monkeypatch).problems if problem.cause == "corefile"]


def test_a_corefile_that_forwards_to_its_own_service(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ".:53 {\n    forward . /etc/resolv.conf\n}\ncorp.example.com:53 {\n    forward . 10.96.0.10\n}\n"
    problems = of_corefile(text, monkeypatch)
    assert [(problem.place, problem.field) for problem in problems] == [("kube-system/coredns", "data.Corefile:5")]
    assert "10.96.0.10 is the DNS Service itself" in problems[0].evidence


def test_a_corefile_with_mistakes_that_forwards_to_its_own_service(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "lan:53 {\n    # forward . 10.96.0.10\n    cach 5\n    forward . 8.8.8.8 10.96.0.10:53\n}\n"
    problems = [one for one in of_corefile(text, monkeypatch) if "is the DNS Service itself" in one.evidence]
    assert [(problem.place, problem.field) for problem in problems] == [("kube-system/coredns", "data.Corefile:4")]
