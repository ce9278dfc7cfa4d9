"""The cluster that other programs have in their tests."""

import json
import re
import threading
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import dnslib
import pytest

from kdns.errors import InputError
from kdns.testing import Cluster, cluster

pytest_plugins = ["pytester"]

EXAMPLES = Path(__file__).parents[2] / "examples"
WEB = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.80, ports: [{port: 80}]}\n"
REPLICAS: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "db"},
    "spec": {
        "replicas": 60,
        "selector": {"matchLabels": {"app": "db"}},
        "template": {
            "metadata": {"labels": {"app": "db"}},
            "spec": {"containers": [{"name": "db", "image": "db"}]},
        },
    },
}
DB: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "db"},
    "spec": {"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 5432}]},
}


@pytest.fixture
def kdns_manifests() -> list[str]:
    return [WEB]


def test_the_fixture_has_the_manifests_that_the_module_names(kdns_cluster: Cluster) -> None:
    response = kdns_cluster.resolve("web")
    assert isinstance(response, dnslib.DNSRecord)
    assert response.short() == "10.96.0.80"
    assert str(kdns_cluster.resolve("10.96.0.80.in-addr.arpa.", "PTR").header.get_rcode()) == str(dnslib.RCODE.NXDOMAIN)
    assert kdns_cluster.resolve("80.0.96.10.in-addr.arpa.", "ptr").short() == "web.default.svc.cluster.local."


@pytest.mark.parametrize(
    ("name", "namespace", "qname", "rcode"),
    [
        ("web", "default", "web.default.svc.cluster.local.", "NOERROR"),
        ("web", "kube-system", "web.cluster.local.", "NXDOMAIN"),
        ("web.default", "kube-system", "web.default.svc.cluster.local.", "NOERROR"),
        ("web.default.svc", "kube-system", "web.default.svc.cluster.local.", "NOERROR"),
        ("web.default.svc.cluster.local", "kube-system", "web.default.svc.cluster.local.", "NOERROR"),
        ("web.", "default", "web.", "REFUSED"),
    ],
)
def test_names_are_completed_as_in_a_pod(
    kdns_cluster: Cluster, name: str, namespace: str, qname: str, rcode: str
) -> None:
    response = kdns_cluster.resolve(name, namespace=namespace)
    assert (str(response.q.qname), dnslib.RCODE[response.header.rcode]) == (qname, rcode)


def test_a_type_that_does_not_exist(kdns_cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="got 'ADDRESS'"):
        kdns_cluster.resolve("web", "ADDRESS")


def test_dns_answers_with_what_was_applied_and_with_what_other_clients_wrote() -> None:
    """60 addresses need TCP, and come from Pods that the controllers make of a Deployment."""
    with cluster(DB, REPLICAS) as c:
        assert len(c.resolve("db").rr) == 60
        c.apply(REPLICAS | {"spec": REPLICAS["spec"] | {"replicas": 2}})
        assert len(c.resolve("db").rr) == 2
        path = f"{c.api}/api/v1/namespaces/default/services"
        body = {"metadata": {"name": "new"}, "spec": {"clusterIP": "10.96.7.7", "ports": [{"port": 1}]}}
        header = {"Content-Type": "application/json"}
        with urlopen(Request(path, json.dumps(body).encode(), header)):  # noqa: S310 - of loopback
            pass
        assert c.resolve("new").short() == "10.96.7.7"
        assert c.api in c.kubeconfig.read_text()
        folder = c.kubeconfig.parent
    assert not folder.exists()


def test_mistakes_are_all_named_and_the_valid_objects_are_there() -> None:
    with cluster(EXAMPLES) as c:
        assert c.resolve("my-service").short() == "10.96.0.20"
        with pytest.raises(InputError) as raised:
            c.apply(WEB, WEB.replace("web", "Bad_Name").replace("10.96.0.80", "8.8.8.8"), "examples/")
        assert "manifest-2:3: metadata.name" in str(raised.value)
        assert "manifest-2:4: spec.clusterIP" in str(raised.value)
        assert "manifest-3:1" in str(raised.value)
        assert c.resolve("web").short() == "10.96.0.80"


def test_nothing_is_left_of_a_cluster_with_invalid_manifests() -> None:
    with pytest.raises(InputError, match="no-such-file"), cluster(Path("no-such-file.yaml")):
        pytest.fail("it started")
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("kdns")] == []


def test_the_tests_of_the_documentation_pass(pytester: pytest.Pytester) -> None:
    """In a process of their own, where nothing but the entry point of the package names the plugin."""
    page = (EXAMPLES.parent / "docs" / "python.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(import pytest\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    pytester.makepyfile(example)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)
