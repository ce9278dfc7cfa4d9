"""ServiceCIDRs: ranges that come and go, and the objects and conditions that tell of it.

Ranges: 10.0.0.0/28 by default (10.0.0.1 … 10.0.0.14; the API's Service is not there), "more" is 10.0.1.0/29.
"""

from ipaddress import ip_network

import pytest
from object_api import refused
from served_kinds import KINDS
from workload_cluster import Workbench

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import IP_ADDRESS, SERVICE, SERVICE_CIDR, Json
from kdns.controlplane.bootstrap import establish, initial_objects
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.reconciler import Action, Change, Request
from kdns.controlplane.controllers.service_cidrs import BLOCKED, FINALIZER, DefaultServiceCidr, ServiceCidrs
from kdns.controlplane.kinds.service.service_cidr import gives_addresses, ip_address_of
from kdns.controlplane.server.registry import Request as ApiRequest
from kdns.controlplane.storage.store import Store

READY = ("True", "", "Kubernetes Service CIDR is ready")
GOING = ("False", "Terminating", BLOCKED)


class Cluster(Workbench):
    """A control plane that has these ranges by its flags."""

    def __init__(self, *cidrs: str, store: Store | None = None) -> None:
        config = ClusterConfig(service_cidrs=tuple(map(ip_network, cidrs or ("10.0.0.0/28",))))
        controllers = DefaultServiceCidr(config), ServiceCidrs()
        super().__init__(config=config, store=store or Store(), controllers=controllers, choose=lambda _: 0)
        establish(self.api, initial_objects(config, "2023-11-14T22:13:20Z"))
        self.settle()

    def service(self, name: str, **spec: object) -> Json:
        return self.make(SERVICE, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}})

    def restarted(self, *cidrs: str) -> "Cluster":
        """The same objects, learnt anew."""
        objects = tuple(version for kind in KINDS for version in self.api.list(ApiRequest(kind)).stored)
        return Cluster(*cidrs, store=Store(objects, revision=self.api.store.revision))


def add(made: Cluster, name: str, *cidrs: str) -> None:
    made.make(SERVICE_CIDR, {"metadata": {"name": name}, "spec": {"cidrs": list(cidrs)}})
    made.settle()


def condition(made: Cluster, name: str) -> tuple[str, str, str]:
    (ready,) = made.get(SERVICE_CIDR, name)["status"]["conditions"]
    assert ready["type"] == "Ready"
    assert ready["lastTransitionTime"] == "2023-11-14T22:13:20Z"
    return ready["status"], ready["reason"], ready["message"]


def delete(made: Cluster, name: str) -> None:
    made.delete(SERVICE_CIDR, name)
    made.settle()


def test_the_default_one_is_there_and_ready() -> None:
    made = Cluster("10.0.0.0/28", "fd00::/120")
    found = made.get(SERVICE_CIDR, "kubernetes")
    assert found["spec"] == {"cidrs": ["10.0.0.0/28", "fd00::/120"]}
    assert found["metadata"]["finalizers"] == [FINALIZER]
    assert condition(made, "kubernetes") == READY
    assert "generation" not in found["metadata"]


def test_another_range_is_used_when_the_first_is_full() -> None:
    made = Cluster()
    for number in range(14):
        made.service(f"s{number}")
    refused(500, "range is full", made.service, "late")
    add(made, "more", "10.0.1.0/29")
    assert condition(made, "more") == READY
    assert made.service("late")["spec"]["clusterIP"] == "10.0.1.1"
    assert made.service("exact", clusterIP="10.0.1.6")["spec"]["clusterIP"] == "10.0.1.6"
    with pytest.raises(
        StatusError, match=r"not in the valid range. The range of valid IPs is 10.0.0.0/28, 10.0.1.0/29"
    ):
        made.service("edge", clusterIP="10.0.1.7")


def test_every_address_is_an_object() -> None:
    made = Cluster("10.0.0.0/28", "fd00::/120")
    made.service("web", ipFamilyPolicy="RequireDualStack", clusterIP="10.0.0.9", clusterIPs=["10.0.0.9", "FD00::0A"])
    assert made.names(IP_ADDRESS) == ["10.0.0.9", "fd00::a"]
    obj = made.get(IP_ADDRESS, "fd00::a")
    assert obj["spec"] == {"parentRef": {"resource": "services", "namespace": "default", "name": "web"}}
    assert obj["metadata"]["labels"] == {
        "ipaddress.kubernetes.io/ip-family": "IPv6",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    service = made.get(SERVICE, "web")
    single = {**service, "spec": {**service["spec"], "ipFamilyPolicy": "SingleStack"}}
    made.put(SERVICE, single)
    assert made.names(IP_ADDRESS) == ["10.0.0.9"]
    alias = {**service, "metadata": {"name": "web"}, "spec": {"type": "ExternalName", "externalName": "x.example"}}
    made.put(SERVICE, alias)
    assert made.names(IP_ADDRESS) == []


def test_hand_made_objects_reserve_their_address() -> None:
    made = Cluster()
    mine = ip_address_of(("default", "later"), "10.0.0.1")
    made.make(IP_ADDRESS, mine)
    refused(422, "provided IP is already allocated", made.service, "later", clusterIP="10.0.0.1")
    assert made.service("web")["spec"]["clusterIP"] == "10.0.0.2"
    made.delete(IP_ADDRESS, "10.0.0.1")
    assert made.service("later", clusterIP="10.0.0.1")["spec"]["clusterIP"] == "10.0.0.1"


def test_the_object_of_a_services_address_cannot_be_deleted() -> None:
    made = Cluster()
    web = made.service("web")
    why = 'ipaddresses.networking.k8s.io "10.0.0.1" is forbidden: Service default/web has this IPAddress; '
    refused(403, f"{why}delete the Service instead", made.delete, IP_ADDRESS, "10.0.0.1")
    named: Json = {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "gone"}]}
    obj = made.get(IP_ADDRESS, "10.0.0.1")
    made.put(IP_ADDRESS, {**obj, "metadata": {**obj["metadata"], **named}})
    assert made.names(IP_ADDRESS) == ["10.0.0.1"]
    made.delete(SERVICE, web["metadata"]["name"])
    assert made.names(IP_ADDRESS) == []


def test_an_object_that_a_finalizer_holds_can_be_deleted_after_its_service() -> None:
    made = Cluster()
    made.service("web")
    obj = made.get(IP_ADDRESS, "10.0.0.1")
    held = {**obj, "metadata": {**obj["metadata"], "finalizers": ["example.com/held"]}}
    held = made.put(IP_ADDRESS, held).copy()
    made.delete(SERVICE, "web")
    assert made.service("next")["spec"]["clusterIP"] == "10.0.0.2"
    made.delete(IP_ADDRESS, "10.0.0.1")
    left = made.get(IP_ADDRESS, "10.0.0.1")
    made.put(IP_ADDRESS, {**left, "metadata": {**left["metadata"], "finalizers": []}})
    assert made.names(IP_ADDRESS) == ["10.0.0.2"]
    assert made.service("again", clusterIP="10.0.0.1")


def test_a_name_that_exists_is_refused_for_its_address_first() -> None:
    made = Cluster()
    made.service("web", clusterIP="10.0.0.5")
    refused(422, "", made.service, "web", clusterIP="10.0.0.5")
    refused(409, "", made.service, "web", clusterIP="10.0.0.6")
    assert made.names(IP_ADDRESS) == ["10.0.0.5"]


def test_one_in_use_stays_until_its_last_address_is_gone() -> None:
    made = Cluster()
    add(made, "more", "10.0.1.0/29")
    made.service("web", clusterIP="10.0.1.3")
    delete(made, "more")
    assert condition(made, "more") == GOING
    refused(422, "not in the valid range", made.service, "late", clusterIP="10.0.1.4")
    made.delete(SERVICE, "web")
    made.settle()
    assert made.names(SERVICE_CIDR) == ["kubernetes"]


@pytest.mark.parametrize(
    ("other", "address", "goes"),
    [
        ("10.0.1.0/29", "10.0.1.3", True),
        ("10.0.0.0/20", "10.0.1.3", True),
        ("10.0.1.0/30", "10.0.1.2", True),
        ("10.0.1.0/30", "10.0.1.3", False),
        ("10.0.1.0/30", "10.0.1.5", False),
        ("10.0.3.0/24", "10.0.1.5", False),
        ("fd00::/64", "10.0.1.5", False),
    ],
    ids=str,
)
def test_another_that_holds_the_addresses_lets_it_go(other: str, address: str, goes: bool) -> None:
    made = Cluster()
    add(made, "more", "10.0.1.0/29")
    made.service("web", clusterIP=address)
    add(made, "other", other)
    delete(made, "more")
    assert ("more" not in made.names(SERVICE_CIDR)) == goes
    with pytest.raises(StatusError, match=r"already allocated|not in the valid range"):
        made.service("again", clusterIP=address)


def test_an_overlapping_one_that_comes_later_lets_it_go() -> None:
    made = Cluster()
    add(made, "more", "10.0.1.0/29")
    made.service("web", clusterIP="10.0.1.3")
    delete(made, "more")
    assert condition(made, "more") == GOING
    add(made, "wide", "10.0.0.0/20")
    assert made.names(SERVICE_CIDR) == ["kubernetes", "wide"]


@pytest.mark.parametrize("cidr", ["10.0.1.0/31", "10.0.1.0/32", "fd00::/128", "fd00::/48"])
def test_ranges_that_give_nothing(cidr: str) -> None:
    made = Cluster("10.0.0.0/28", "fd01::/120")
    add(made, "more", cidr)
    found = {family: list(pool.ranges) for family, pool in made.api.services.addresses.items()}
    size = sum(range_.size for pool in made.api.services.addresses.values() for range_ in pool.ranges.values())
    assert size == 14 + 255, found
    made.service("web", ipFamilyPolicy="RequireDualStack")


@pytest.mark.parametrize(("status", "gives"), [("True", True), ("False", False), ("Unknown", False)])
def test_ready_is_true_or_absent(status: str, *, gives: bool) -> None:
    row: Json = {"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": status}]}}
    assert gives_addresses(row) is gives
    assert gives_addresses({"metadata": {}})
    assert not gives_addresses({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})


def test_a_range_of_one() -> None:
    made = Cluster("10.0.0.0/28", "fd00::/127")
    assert made.service("web", ipFamilies=["IPv6"])["spec"]["clusterIP"] == "fd00::1"
    refused(500, "range is full", made.service, "late", ipFamilies=["IPv6"])


def test_the_default_one_is_made_again() -> None:
    made = Cluster()
    uid = made.get(SERVICE_CIDR, "kubernetes")["metadata"]["uid"]
    delete(made, "kubernetes")
    assert made.get(SERVICE_CIDR, "kubernetes")["metadata"]["uid"] != uid
    assert condition(made, "kubernetes") == READY


def test_another_flag_is_told_and_changes_nothing() -> None:
    before = Cluster()
    before.service("web")
    made = before.restarted("10.9.0.0/24")
    (event,) = made.events
    assert (event.type, event.reason) == ("Warning", "KubernetesDefaultServiceCIDRInconsistent")
    assert event.message == (
        "The default ServiceCIDR [10.0.0.0/28] does not match the controller flag configurations [10.9.0.0/24]"
    )
    assert made.service("next")["spec"]["clusterIP"] == "10.0.0.2"
    assert condition(made, "kubernetes") == READY


def test_a_second_family_by_flag_extends_the_default_one() -> None:
    before = Cluster()
    before.service("web")
    made = before.restarted("10.0.0.0/28", "fd00::/120")
    assert made.events == []
    assert made.get(SERVICE_CIDR, "kubernetes")["spec"]["cidrs"] == ["10.0.0.0/28", "fd00::/120"]
    both = made.service("both", ipFamilyPolicy="RequireDualStack")
    assert both["spec"]["clusterIPs"] == ["10.0.0.2", "fd00::11"]


def test_going_through_status_is_not_going_through_spec() -> None:
    made = Cluster()
    stored = made.get(SERVICE_CIDR, "kubernetes")
    sent = {**stored, "spec": {"cidrs": ["10.0.0.0/28", "fd00::/64"]}, "status": {}}
    assert made.put(SERVICE_CIDR, sent, "status")["spec"] == stored["spec"]
    made.settle()
    again = made.put(SERVICE_CIDR, {**sent, "metadata": {"name": "kubernetes"}})
    assert again["status"]["conditions"], "status is not changed through the object itself"


def test_writes_that_are_refused_are_told() -> None:
    made = Cluster("10.0.0.0/28", "fd00::/120")
    default, cidrs = DefaultServiceCidr(made.config), ServiceCidrs()
    broken, stored = StatusError(500, "InternalError", "no"), made.get(SERVICE_CIDR, "kubernetes")
    write = Action("update", SERVICE_CIDR, stored)
    told = default.failed(Request(("kubernetes",), 0), write, broken)
    assert told
    assert told.message == "The default ServiceCIDR can not be created"
    cidrs.observe(Change(SERVICE_CIDR, ("", "kubernetes"), stored, 1))
    told = cidrs.failed(Request(("kubernetes",), 0), write, broken)
    assert told
    assert (told.reason, told.message) == (
        "KubernetesServiceCIDRError",
        "The ServiceCIDR Status can not be set to Ready=True",
    )
