"""The Services that every cluster has: who has an address before them keeps it, and nothing ends for it."""

from ipaddress import ip_network
from itertools import count

import pytest

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import ENDPOINTS, SERVICE, Json
from kdns.controlplane.bootstrap import Listening, establish, initial_objects, missing_dns_service
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.store import Store

NOW = "2023-11-14T22:13:20Z"


class Cluster:
    """A control plane whose start is made in steps."""

    def __init__(self, service_cidr: str = "10.96.0.0/16") -> None:
        self.config = ClusterConfig(service_cidrs=(ip_network(service_cidr),))
        numbers = count(1)
        self.api = Registry(
            Store(),
            self.config,
            lambda upper: upper - 1,
            lambda: 1.7e9,
            lambda: f"uid-{next(numbers)}",
            lambda: "suffix",
        )

    def begin(self) -> list[str]:
        """What is written before manifests are applied."""
        first = initial_objects(self.config, NOW, api=Listening("127.0.0.1", 8001))
        problems = establish(self.api, first)
        return problems + establish(self.api, missing_dns_service(self.api, self.config))

    def listen(self) -> list[str]:
        """What is written when DNS listens."""
        objects = initial_objects(self.config, NOW, dns=Listening("127.0.0.1", 1053))
        return establish(self.api, objects)

    def create(self, name: str, address: str) -> None:
        self.api.create(Request(SERVICE, "default"), service(name, address))

    def address(self, namespace: str, name: str) -> str:
        return str(self.api.get(Request(SERVICE, namespace, name))["spec"]["clusterIP"])


def service(name: str, address: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}}


@pytest.mark.parametrize(
    ("service_cidr", "kubernetes", "kube_dns"),
    [
        ("10.96.0.0/16", "10.96.0.1", "10.96.0.10"),
        ("10.96.0.0/28", "10.96.0.1", "10.96.0.10"),
        ("10.96.0.0/29", "10.96.0.1", "10.96.0.6"),
        ("fd00::/125", "fd00::1", "fd00::6"),
    ],
)
def test_the_clusters_own_services_have_their_addresses_before_others_ask(
    service_cidr: str, kubernetes: str, kube_dns: str
) -> None:
    cluster = Cluster(service_cidr)
    assert cluster.begin() == []
    for address in (kubernetes, kube_dns):
        with pytest.raises(StatusError, match="provided IP is already allocated"):
            cluster.create("late", address)
    assert cluster.listen() == []
    assert cluster.address("default", "kubernetes") == kubernetes
    assert cluster.address("kube-system", "kube-dns") == kube_dns
    ports = cluster.api.get(Request(SERVICE, "kube-system", "kube-dns"))["spec"]["ports"]
    assert [(port["name"], port["targetPort"]) for port in ports] == [("dns", 1053), ("dns-tcp", 1053)]


def test_a_service_of_a_former_start_keeps_the_address_and_it_is_said() -> None:
    cluster = Cluster()
    establish(cluster.api, initial_objects(cluster.config, NOW))
    for name, address in (("first", "10.96.0.1"), ("tenth", "10.96.0.10")):
        cluster.create(name, address)
    kubernetes, kube_dns = cluster.begin()
    api, dns = cluster.address("default", "kubernetes"), cluster.address("kube-system", "kube-dns")
    said = "Service {} has the cluster IP {}, since Service default/{} has {}"
    assert kubernetes == said.format("default/kubernetes", api, "first", "10.96.0.1")
    assert kube_dns == said.format("kube-system/kube-dns", dns, "tenth", "10.96.0.10")
    assert cluster.listen() == []
    assert len({"10.96.0.1", "10.96.0.10", api, dns}) == 4


def test_what_cannot_be_written_is_said_and_the_rest_is_there() -> None:
    cluster = Cluster("10.96.0.0/30")
    establish(cluster.api, initial_objects(cluster.config, NOW))
    cluster.create("first", "10.96.0.1")
    cluster.create("second", "10.96.0.2")
    names = [problem.partition(" could not be reconciled: ")[0] for problem in cluster.begin()]
    assert names == ["Service default/kubernetes", "Service kube-system/kube-dns"]
    assert cluster.api.get(Request(ENDPOINTS, "default", "kubernetes"))["subsets"]
