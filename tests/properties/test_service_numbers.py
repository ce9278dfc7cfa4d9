"""Services through the whole API, in any order of writes, refusals, dry runs, deletions, range changes and restarts.

No address or port has two owners, every cluster IP has its IPAddress, and without Services nothing is allocated.
Also after a start from objects of which some IPAddresses are missing.
"""

from __future__ import annotations

from collections.abc import Container
from ipaddress import ip_network
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import IP_ADDRESS, NAMESPACE, SERVICE, SERVICE_CIDR, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.service.service_cidr import default_service_cidr, is_managed, names_of, service_of
from kdns.controlplane.kinds.service.spec import ports_held
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.store import Commit, Store, StoredObject

CONFIG = ClusterConfig(
    service_cidrs=(ip_network("10.0.0.0/29"), ip_network("fd00::/125")), node_port_range=range(30000, 30008)
)
NOW_S = 1_700_000_000.0
NAMES = st.sampled_from(["a", "b", "c", "d"])
WRITE = st.tuples(
    st.sampled_from(["write"] * 6 + ["dry run", "refused", "delete", "delete", "lose", "reserve", "range", "restart"]),
    NAMES,
    st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]),
    st.sampled_from(["", "", "None", "10.0.0.3", "10.0.1.1"]),
    st.sampled_from([0, 30001, 30002]),
    st.sampled_from([None, "SingleStack", "PreferDualStack", "RequireDualStack"]),
    st.sampled_from(["one", "two", "shared"]),
)
Write = tuple[str, str, str, str, int, str | None, str]
SECOND: dict[str, list[Json]] = {
    "one": [],
    "two": [{"name": "b", "port": 81}],
    "shared": [{"name": "b", "port": 80, "protocol": "UDP"}],
}


class Cluster:
    """An API whose commits are recorded."""

    def __init__(
        self, objects: list[StoredObject] | None = None, revision: int = 1, commits: list[Commit] | None = None
    ) -> None:
        self.commits = commits or []
        self.loses = False
        numbers = count(revision)
        store = Store(objects or [], revision=revision, persist=self._persist)
        new = lambda: f"uid-{next(numbers)}"  # noqa: E731
        self.api = Registry(store, CONFIG, lambda n: n // 2, lambda: NOW_S, new, lambda: "x")

    def _persist(self, commit: Commit) -> None:
        if self.loses:
            raise StatusError(500, "InternalError", "cannot write")
        self.commits.append(commit)

    def restarted(self, without: Container[str] = ()) -> Cluster:
        """The cluster after a restart; the allocator's IPAddresses with names in `without` are missing."""
        objects: dict[tuple[Kind, Key], StoredObject] = {}
        for commit in self.commits:
            objects.pop((commit.kind, commit.key), None)
            is_lost = (
                commit.new and commit.kind == IP_ADDRESS and commit.key[1] in without and is_managed(commit.new.obj)
            )
            if commit.new and not is_lost:
                objects[commit.kind, commit.key] = commit.new
        return Cluster([*objects.values()], self.api.store.revision, [*self.commits])

    def prepare(self) -> None:
        self.api.create(Request(NAMESPACE), {"metadata": {"name": "default"}})
        self.api.create(Request(SERVICE_CIDR), default_service_cidr(CONFIG))

    def all(self, kind: Kind) -> list[Json]:
        return self.api.list(Request(kind)).items

    def apply(self, write: Write) -> None:
        what, name, kind, ip, port, policy, more = write
        try:
            if what == "delete":
                self.api.delete(Request(SERVICE, "default", name))
            elif what == "reserve":
                self._toggle(IP_ADDRESS, ip if ":" in ip or "." in ip else "fd00::4", {"parentRef": PARENT})
            elif what == "range":
                self._toggle(SERVICE_CIDR, "more", {"cidrs": ["10.0.1.0/30"]})
            else:
                self.loses = what == "lose"
                obj = service(name, kind, ip, port, policy, more)
                if what == "refused":
                    obj["spec"]["sessionAffinity"] = "Sometimes"
                self.api.update(Request(SERVICE, "default", name, dry_run=what == "dry run"), obj)
        except StatusError:
            pass
        finally:
            self.loses = False

    def _toggle(self, kind: Kind, name: str, spec: Json) -> None:
        stored = self.api.store.get(kind, ("", name))
        if stored is None:
            self.api.create(Request(kind), {"metadata": {"name": name}, "spec": spec})
        elif kind == SERVICE_CIDR or not is_managed(stored.obj):
            self.api.delete(Request(kind, "", name))

    def check(self) -> None:
        numbers = self.api.services
        services, objects = self.all(SERVICE), self.all(IP_ADDRESS)
        addresses = [name for each in services for name in names_of(each)]
        ports = [port for each in services for port in ports_held(each["spec"])]
        assert len(addresses) == len(set(addresses))
        assert len(ports) == len(set(ports))
        assert set(addresses) == {obj["metadata"]["name"] for obj in objects if is_managed(obj)}
        assert all(obj["metadata"]["name"] in names_of(self.owner(obj) or {}) for obj in objects if is_managed(obj))
        assert len(addresses) == sum(len(address.owners) for address in numbers.addresses.values())
        assert set(ports) == set(numbers.ports.owners)
        assert numbers.ports.pool.used == len(ports)

    def owner(self, obj: Json) -> Json | None:
        stored = self.api.store.get(SERVICE, service_of(obj) or ("", ""))
        return stored.obj if stored else None


PARENT = {"group": "example.com", "resource": "things", "name": "mine"}


def service(name: str, kind: str, ip: str, port: int, policy: str | None, more: str) -> Json:
    rows = [{"name": "a", "port": 80, **({"nodePort": port} if port else {})}, *SECOND[more]]
    spec: Json = {"type": kind, "clusterIP": ip, "ports": rows, "ipFamilyPolicy": policy, "externalName": "x.example"}
    if kind == "LoadBalancer":
        spec["externalTrafficPolicy"] = "Local"
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


@given(st.lists(WRITE, max_size=30))
def test_numbers_are_never_shared_and_never_leak(writes: list[Write]) -> None:
    cluster = Cluster()
    cluster.prepare()
    for write in writes:
        if write[0] == "restart":
            cluster = cluster.restarted()
        cluster.apply(write)
        cluster.check()
    assert cluster.restarted().api.lost == []
    for kind in (SERVICE, IP_ADDRESS):
        cluster.api.delete_all(Request(kind), cluster.api.list(Request(kind)).stored)
    numbers = cluster.api.services
    ranges = [range_ for family in numbers.addresses.values() for range_ in family.ranges.values()]
    assert [each.used for each in (*ranges, numbers.ports.pool)] == [0] * (len(ranges) + 1)
    assert not any(family.owners or family.objects for family in numbers.addresses.values())


@given(st.lists(WRITE, max_size=12), st.data())
def test_a_start_makes_missing_objects(writes: list[Write], data: st.DataObject) -> None:
    cluster = Cluster()
    cluster.prepare()
    for write in writes:
        cluster.apply(write)
    names = [each["metadata"]["name"] for each in cluster.all(IP_ADDRESS)]
    cluster = cluster.restarted(without=data.draw(st.sets(st.sampled_from(names))) if names else ())
    cluster.check()
    for write in writes:
        cluster.apply(write)
        cluster.check()
