"""Whatever is written, reverted and deleted in whatever order: no number has two owners, and none is lost."""

from __future__ import annotations

from ipaddress import ip_network

from hypothesis import given, settings
from hypothesis import strategies as st

from kdns.controlplane.allocate import Addresses, AllocationError, RangeFullError, Transaction
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.endpointpods import pod_ips
from kdns.controlplane.kinds import SERVICE, Json
from kdns.controlplane.pods import PodAddresses
from kdns.controlplane.services import owned_node_ports
from kdns.controlplane.status import StatusError
from kdns.controlplane.strategy import Prepared, Strategies

STEP = st.tuples(st.sampled_from(["any", "this", "release"]), st.integers(0, 40), st.booleans(), st.integers(0, 10**6))


@given(st.sampled_from(["10.0.0.0/27", "10.0.0.0/29", "fd00::/123"]), st.lists(STEP, max_size=120))
def test_one_owner_per_address(cidr: str, steps: list[tuple[str, int, bool, int]]) -> None:
    network = ip_network(cidr)
    held: set[str] = set()
    choice = [0]
    pool = Addresses(network, lambda n: choice[0] % n)
    for verb, offset, commit, choice[0] in steps:
        txn, got, gone = Transaction(), "", ""
        try:
            if verb == "any":
                got = pool.allocate_next(txn)
            elif verb == "this":
                got = str(network[offset % network.num_addresses])
                pool.allocate(got, txn)
            elif held:
                gone = sorted(held)[offset % len(held)]
                pool.release(gone, txn)
        except AllocationError:
            got = ""
        except RangeFullError:
            assert len(held) == pool.pool.size
        assert got not in held
        if commit:
            txn.commit()
            held = (held | {got}) - {gone, ""}
        else:
            txn.revert()
        assert len(pool.pool.taken) == len(held)


TYPES = st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"])
NAMES = st.sampled_from(["a", "b", "c", "d"])
WRITE = st.tuples(
    NAMES,
    TYPES,
    st.sampled_from(["", "None", "10.0.0.3", "10.0.0.4"]),
    st.sampled_from([0, 30001, 30002]),
    st.sampled_from([None, "SingleStack", "PreferDualStack", "RequireDualStack"]),
    st.sampled_from(["one", "two", "shared"]),
    st.sampled_from(["write", "write", "dry run", "lose", "delete"]),
)
CONFIG = ClusterConfig(
    service_cidrs=(ip_network("10.0.0.0/28"), ip_network("fd00::/124")), node_port_range=range(30000, 30008)
)


SECOND = {"one": [], "two": [{"name": "b", "port": 81}], "shared": [{"name": "b", "port": 80, "protocol": "UDP"}]}


def service(name: str, kind: str, ip: str, port: int, policy: str | None, more: str) -> Json:
    rows = [{"name": "a", "port": 80, **({"nodePort": port} if port else {})}, *SECOND[more]]
    spec: Json = {"type": kind, "clusterIP": ip, "ports": rows, "ipFamilyPolicy": policy, "externalName": "x.example"}
    if kind == "LoadBalancer":
        spec["externalTrafficPolicy"] = "Local"
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def numbers(obj: Json) -> list[object]:
    spec = obj["spec"]
    ports = set(owned_node_ports(obj))
    health = [spec["healthCheckNodePort"]] if spec.get("healthCheckNodePort") else []
    return [*(ip for ip in spec.get("clusterIPs") or [] if ip != "None"), *ports, *health]


def taken(strategies: Strategies) -> int:
    services = strategies.services
    return sum(len(pool.pool.taken) for pool in services.addresses.values()) + len(services.ports.pool.taken)


@settings(deadline=None)
@given(st.lists(WRITE, max_size=30))
def test_services_never_share_and_never_leak(writes: list[tuple[str, str, str, int, str | None, str, str]]) -> None:
    strategies = Strategies(CONFIG, lambda n: n // 2)
    stored: dict[str, Json] = {}
    for name, kind, ip, port, policy, more, what in writes:
        old = stored.get(name)
        if what == "delete":
            if old:
                strategies.deleted(SERVICE, stored.pop(name))
            continue
        wanted = service(name, kind, ip, port, policy, more)
        dry_run = what == "dry run"
        prepared: Prepared | None
        try:
            if old:
                prepared = strategies.update(SERVICE, old, wanted, dry_run=dry_run)
            else:
                prepared = strategies.create(SERVICE, wanted, dry_run=dry_run)
        except StatusError:
            prepared = None
        if prepared and what == "write":
            prepared.commit()
            stored[name] = prepared.obj
        elif prepared:
            prepared.revert()
        owned = [number for obj in stored.values() for number in numbers(obj)]
        assert len(owned) == len(set(owned)) == taken(strategies)
    again = Strategies(CONFIG, lambda n: n // 2)
    for obj in stored.values():
        again.restore(SERVICE, obj)
    assert again.lost == []
    assert taken(again) == taken(strategies)


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.integers(0, 100)), max_size=60))
def test_pods_never_share_an_address(steps: list[tuple[int, bool, int]]) -> None:
    config = ClusterConfig(pod_cidrs=(ip_network("10.1.0.0/26"),))
    choice = [0]
    addresses = PodAddresses(config, lambda n: choice[0] % n)
    pods: dict[str, Json] = {}
    for number, comes, choice[0] in steps:
        uid = f"uid-{number}"
        if not comes or uid in pods:
            pods.pop(uid, None)
            addresses.follow(uid, None)
            continue
        ips = addresses.choose()
        assert not {ip for pod in pods.values() for ip in pod_ips(pod)} & {*ips, "10.1.0.0", "10.1.0.1", "10.1.0.63"}
        pods[uid] = {"metadata": {}, "spec": {}, "status": {"podIPs": [{"ip": ip} for ip in ips]}}
        addresses.follow(uid, pods[uid])
