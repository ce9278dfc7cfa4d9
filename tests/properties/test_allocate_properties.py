"""Any writes, refusals and deletions in any order: no number has two owners, and none is lost."""

from ipaddress import ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.pod.pod import pod_ips
from kdns.controlplane.kinds.service.allocator import Addresses, AllocationError, AllocatorMetrics, RangeFullError
from kdns.controlplane.simulation.nodes.pod_addresses import PodAddresses

OWNERS = [("default", name) for name in "abcd"]
STEP = st.tuples(
    st.sampled_from(["any", "this", "release", "reserve", "unreserve", "ranges"]),
    st.integers(0, 40),
    st.booleans(),
    st.integers(0, 10**6),
    st.sampled_from(OWNERS),
)
RANGES = [
    ("10.0.0.0/27", "10.0.0.16/29", "10.0.1.0/30"),
    ("10.0.0.0/29", "10.0.0.0/31", "10.0.0.5/32"),
    ("fd00::/123", "fd00::10/127", "fd00::1:0/128"),
]


@given(st.sampled_from(RANGES), st.lists(STEP, max_size=120))
def test_one_owner_per_address(cidrs: tuple[str, ...], steps: list[tuple[str, int, bool, int, Key]]) -> None:
    """With overlapping and small ranges that change, IPAddresses made by hand, and any owners."""
    networks = [ip_network(cidr) for cidr in cidrs]
    held: dict[str, Key] = {}
    objects: set[str] = set()
    choice = [0]
    pool = Addresses(lambda n: choice[0] % n, AllocatorMetrics())
    pool.set_ranges(dict.fromkeys(networks, True))
    for verb, offset, is_stored, choice[0], owner in steps:
        got, gone = "", ""
        network = networks[offset % len(networks)]
        some = str(network[offset % network.num_addresses])
        try:
            if verb == "any":
                got = pool.find(dry_run=False)
            elif verb == "this":
                pool.check(some, dry_run=False)
                got = some
            elif verb == "reserve":
                pool.reserve(int(ip_address(some)))
                objects.add(some)
            elif verb == "unreserve":
                pool.unreserve(int(ip_address(some)))
                objects.discard(some)
            elif verb == "ranges":
                bits = offset, offset >> 3
                pool.set_ranges(
                    {each: bool(bits[1] >> n & 1) for n, each in enumerate(networks) if not bits[0] >> n & 1}
                )
            elif held:
                gone = sorted(held)[offset % len(held)]
                pool.free(int(ip_address(gone)), owner)
                gone = gone if held[gone] == owner else ""
        except AllocationError:
            got = ""
        except RangeFullError:
            assert all(range_.used == range_.size for range_ in pool.ranges.values() if range_.ready)
        assert got not in held.keys() | objects
        if got and is_stored:
            assert pool.hold(int(ip_address(got)), owner)
            held[got] = owner
        held.pop(gone, None)
        assert {str(ip_address(number)): owner for number, owner in pool.owners.items()} == held
        for range_ in pool.ranges.values():
            taken = map(int, map(ip_address, held.keys() | objects))
            assert range_.used == sum(range_.low <= number < range_.high for number in taken)


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
