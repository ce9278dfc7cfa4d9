"""Clusters in which a program breaks one thing at random: the explanation names that thing.

What breaks a cluster knows what it broke, and nothing of how causes are found.
"""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from kdns.apps.explain import ExplainOptions, explain
from kdns.apps.sources.source import ObjectSource
from kdns.cli.flags import POD_CIDR, SERVICE_CIDR, service_and_pod_networks
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.explain.findings import Findings, Inquiry

Json: TypeAlias = dict[str, Any]

WORDS: Final = ("cart", "shop", "mail", "search", "billing", "login", "stock", "price", "video", "photo", "queue")
HTTP: Final = {"name": "http", "port": 80}


@dataclass
class Cluster:
    """Objects that fit together, by chance."""

    chance: random.Random
    objects: list[Json] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.namespaces = self.chance.sample(WORDS, 3)
        self.objects += [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in self.namespaces]
        for namespace in self.namespaces:
            for name in self.chance.sample(WORDS, 4):
                self.service(namespace, name, is_headless=self.chance.random() < 0.4)

    def service(self, namespace: str, name: str, *, is_headless: bool) -> None:
        spec: Json = {"selector": {"app": name}, "ports": [dict(HTTP)]} | ({"clusterIP": "None"} if is_headless else {})
        self.add("v1", "Service", namespace, name, spec=spec)
        for number in range(self.chance.randint(1, 3)):
            of_pod: Json = {"containers": [{"name": "c", "image": "x"}]}
            self.add("v1", "Pod", namespace, f"{name}-{number}", {"app": name}, spec=of_pod)

    def alias(self, namespace: str, name: str, target: str) -> Json:
        return self.add("v1", "Service", namespace, name, spec={"type": "ExternalName", "externalName": target})

    def add(self, version: str, kind: str, namespace: str, name: str, labels: Json | None = None, **more: Any) -> Json:
        metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
        self.objects.append({"apiVersion": version, "kind": kind, "metadata": metadata, **more})
        return self.objects[-1]

    def add_slice(self, namespace: str, service: str, endpoints: list[Json]) -> None:
        labels = {"kubernetes.io/service-name": service}
        more = {"addressType": "IPv4", "endpoints": endpoints, "ports": [HTTP]}
        self.add("discovery.k8s.io/v1", "EndpointSlice", namespace, f"{service}-1", labels, **more)

    def any_service(self, *, is_headless: bool | None = None) -> Json:
        """One with a selector; a cluster without one of that sort gets it."""
        services = [obj for obj in self.objects if obj["kind"] == "Service"]
        found = [obj for obj in services if is_headless in {None, "clusterIP" in obj["spec"]}]
        if not found:
            self.service(self.namespaces[0], "extra", is_headless=bool(is_headless))
            return self.any_service(is_headless=is_headless)
        return self.chance.choice(found)

    def pods_of(self, service: Json) -> list[Json]:
        namespace, name = where(service)
        of_service = {"namespace": namespace, "labels": {"app": name}}
        pods = [obj for obj in self.objects if obj["kind"] == "Pod"]
        return [pod for pod in pods if of_service.items() <= pod["metadata"].items()]


@dataclass
class Asked:
    """A question about what was broken, and what its explanation has to name."""

    name: str
    names: tuple[str, ...]
    qtype: str = "A"
    pod: str = ""


def where(obj: Json) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def full(service: Json, below: str = "") -> str:
    namespace, name = where(service)
    return f"{below}{name}.{namespace}.svc.cluster.local"


def misspelt(word: str, chance: random.Random) -> str:
    """The word with two letters in the other order, or one twice: no other word of this program."""
    at = chance.randrange(len(word) - 1)
    turned = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return turned if turned != word else word + word[-1]


def selector_with_a_typing_error(cluster: Cluster) -> Asked:
    service = cluster.any_service()
    name = service["metadata"]["name"]
    wrong = misspelt(name, cluster.chance)
    service["spec"]["selector"] = {"app": wrong}
    return Asked(full(service), (f"app={wrong}", f"app={name}"))


def no_pods(cluster: Cluster) -> Asked:
    service = cluster.any_service()
    pods = cluster.pods_of(service)
    cluster.objects = [obj for obj in cluster.objects if obj not in pods]
    return Asked(full(service), (f"app={service['metadata']['name']}", "matches 0 of"))


def service_that_is_gone(cluster: Cluster) -> Asked:
    service = cluster.any_service()
    cluster.objects.remove(service)
    namespace, name = where(service)
    return Asked(full(service), (f'no Service "{name}" in "{namespace}"',))


def service_in_another_namespace(cluster: Cluster) -> Asked:
    service = cluster.any_service()
    name = full(service)
    cluster.objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "moved"}})
    service["metadata"]["namespace"] = "moved"
    return Asked(name, (full(service),))


def service_that_was_renamed(cluster: Cluster) -> Asked:
    service = cluster.any_service()
    asked, name = full(service), service["metadata"]["name"]
    service["metadata"]["name"] = misspelt(name, cluster.chance)
    return Asked(asked, (f'no Service "{name}"', f'"{service["metadata"]["name"]}"'))


def namespace_with_a_typing_error(cluster: Cluster) -> Asked:
    service = cluster.any_service()
    namespace, name = where(service)
    wrong = misspelt(namespace, cluster.chance)
    return Asked(f"{name}.{wrong}.svc.cluster.local", (f'no Namespace "{wrong}"', f'"{namespace}"'))


def port_that_was_renamed(cluster: Cluster) -> Asked:
    service = cluster.any_service()
    service["spec"]["ports"][0]["name"] = "web"
    return Asked(full(service, "_http._tcp."), ('no port "http"', "web/TCP 80"), "SRV")


def port_of_another_protocol(cluster: Cluster) -> Asked:
    service = cluster.any_service()
    service["spec"]["ports"][0]["protocol"] = "UDP"
    return Asked(full(service, "_http._tcp."), ('"http"', "UDP", "not TCP"), "SRV")


def pods_that_are_not_ready(cluster: Cluster) -> Asked:
    service = cluster.any_service()
    namespace, name = where(service)
    endpoints = [
        {
            "addresses": [f"10.244.7.{number + 1}"],
            "conditions": {"ready": False},
            "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod["metadata"]["name"]},
        }
        for number, pod in enumerate(cluster.pods_of(service))
    ]
    cluster.add_slice(namespace, name, endpoints)
    return Asked(full(service), ("Ready", f"{name}-0"))


def slice_of_another_service(cluster: Cluster) -> Asked:
    service = cluster.any_service(is_headless=True)
    namespace, name = where(service)
    del service["spec"]["selector"]
    cluster.add_slice(namespace, misspelt(name, cluster.chance), [{"addresses": ["10.244.7.1"]}])
    return Asked(full(service), ("no selector", f"kubernetes.io/service-name={name}"))


def alias_of_nothing(cluster: Cluster) -> Asked:
    namespace = cluster.chance.choice(cluster.namespaces)
    alias = cluster.alias(namespace, "alias", f"gone.{namespace}.svc.cluster.local")
    return Asked(full(alias), (f'no Service "gone" in "{namespace}"',))


def aliases_in_a_circle(cluster: Cluster) -> Asked:
    names = [f"alias{number}" for number in range(cluster.chance.randint(2, 4))]
    namespace = cluster.chance.choice(cluster.namespaces)
    for name, following in zip(names, (*names[1:], names[0]), strict=True):
        last = cluster.alias(namespace, name, f"{following}.{namespace}.svc.cluster.local")
    return Asked(full(last), ("a loop of", *names))


def alias_of_an_address(cluster: Cluster) -> Asked:
    alias = cluster.alias(cluster.namespaces[0], "alias", "192.0.2.1")
    return Asked(full(alias), ("192.0.2.1", "is an address"))


def pod_that_asks_its_node(cluster: Cluster) -> Asked:
    service = cluster.any_service()
    pod = cluster.chance.choice(cluster.pods_of(service))
    pod["spec"]["dnsPolicy"] = "Default"
    return Asked(service["metadata"]["name"], ("dnsPolicy is Default",), pod="/".join(where(pod)))


def name_without_svc(cluster: Cluster) -> Asked:
    service = cluster.any_service()
    namespace, name = where(service)
    return Asked(f"{name}.{namespace}.cluster.local", ("`svc` is missing", full(service)))


def endpoint_that_is_gone(cluster: Cluster) -> Asked:
    service = cluster.any_service(is_headless=True)
    return Asked(full(service, "10-244-99-99."), ('no endpoint "10-244-99-99"',))


def short_name_in_another_namespace(cluster: Cluster) -> Asked:
    """The client's namespace is `default`, which has none of these Services."""
    service = cluster.any_service()
    return Asked(service["metadata"]["name"], (full(service),))


def address_of_nobody(cluster: Cluster) -> Asked:
    address = f"198.51.100.{cluster.chance.randint(1, 254)}"
    return Asked(address, ("no Service, endpoint or Pod", address))


BREAKS: Final[tuple[Callable[[Cluster], Asked], ...]] = (
    selector_with_a_typing_error,
    no_pods,
    service_that_is_gone,
    service_in_another_namespace,
    service_that_was_renamed,
    namespace_with_a_typing_error,
    port_that_was_renamed,
    port_of_another_protocol,
    pods_that_are_not_ready,
    slice_of_another_service,
    alias_of_nothing,
    aliases_in_a_circle,
    alias_of_an_address,
    pod_that_asks_its_node,
    name_without_svc,
    endpoint_that_is_gone,
    short_name_in_another_namespace,
    address_of_nobody,
)


def said(found: Findings) -> str:
    return "\n".join([found.remark, *(cause.text for cause in found.chosen.causes)])


async def explained(folder: Path, cluster: Cluster, asked: Asked) -> str:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster.objects}))
    service_cidrs, pod_cidrs = service_and_pod_networks(SERVICE_CIDR, POD_CIDR)
    options = ExplainOptions(
        Inquiry(asked.name, asked.qtype, "default", asked.pod),
        "",
        "cluster.local",
        ObjectSource((path,), cluster=ClusterConfig(service_cidrs, pod_cidrs=pod_cidrs)),
    )
    remarks: list[str] = []
    found = await explain(options, remarks.append)
    assert not remarks
    return said(found)


@pytest.mark.parametrize(
    "seed",
    [
        *range(2 * len(BREAKS)),
        *(pytest.param(seed, marks=pytest.mark.release) for seed in range(2 * len(BREAKS), 4 * len(BREAKS))),
    ],
)
def test_what_was_broken_is_named(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    cluster = Cluster(chance)
    break_it = BREAKS[seed % len(BREAKS)]
    asked = break_it(cluster)
    text = asyncio.run(explained(tmp_path, cluster, asked))
    missing = [name for name in asked.names if name not in text]
    assert not missing, f"{break_it.__name__}: {asked}\n{text}"


@pytest.mark.parametrize("seed", range(3))
def test_of_what_is_not_broken_nothing_is_said(tmp_path: Path, seed: int) -> None:
    cluster = Cluster(random.Random(seed))
    service = cluster.any_service()
    text = asyncio.run(explained(tmp_path, cluster, Asked(full(service), ())))
    assert text.strip().startswith(("Service", "headless Service"))
    assert "nothing is behind" not in text
    assert "no endpoint" not in text
