"""Cluster IPs and node ports: bands, order, errors, owners."""

from collections.abc import Callable
from ipaddress import ip_address, ip_network

import pytest

from kdns.controlplane.kinds.service.allocator import (
    Addresses,
    AllocationError,
    AllocatorMetrics,
    Ports,
    RangeFullError,
    band,
)

ME, OTHER = ("default", "me"), ("default", "other")


def first(_: int) -> int:
    return 0


def last(n: int) -> int:
    return n - 1


def addresses(*cidrs: str, choose: Callable[[int], int] = first) -> Addresses:
    pool = Addresses(choose, AllocatorMetrics())
    pool.set_ranges({ip_network(cidr): True for cidr in cidrs})
    return pool


def number(address: str) -> int:
    return int(ip_address(address))


def filled(pool: Addresses, count: int) -> list[str]:
    """Holds so many free addresses, one after the other."""
    addresses = []
    for _ in range(count):
        addresses.append(pool.find(dry_run=False))
        assert pool.hold(number(addresses[-1]), ME)
    return addresses


@pytest.mark.parametrize(
    ("size", "step", "most", "expected"),
    [
        (16, 16, 256, 0),
        (32, 16, 256, 16),
        (2**8, 16, 256, 16),
        (2**10, 16, 256, 64),
        (2**12, 16, 256, 256),
        (2**16, 16, 256, 256),
        (2**64, 16, 256, 256),
        (16, 32, 128, 0),
        (2768, 32, 128, 86),
        (65536, 32, 128, 128),
    ],
)
def test_static_band(size: int, step: int, most: int, expected: int) -> None:
    assert band(size, step, most) == expected


@pytest.mark.parametrize(
    ("cidr", "choose", "expected"),
    [
        ("10.96.0.0/16", first, "10.96.1.1"),
        ("10.96.0.0/16", last, "10.96.255.254"),
        ("10.0.0.0/24", first, "10.0.0.17"),
        ("10.0.0.0/28", first, "10.0.0.1"),
        ("10.0.0.0/28", last, "10.0.0.14"),
        ("fd00:10:96::/112", first, "fd00:10:96::101"),
        ("fd00:10:96::/112", last, "fd00:10:96::ffff"),
        ("fd00::/64", last, "fd00::ffff:ffff:ffff:ffff"),
    ],
)
def test_dynamic_addresses_start_above_the_static_band(cidr: str, choose: Callable[[int], int], expected: str) -> None:
    assert addresses(cidr, choose=choose).find(dry_run=False) == expected


def test_the_lower_band_comes_last_and_then_nothing() -> None:
    pool = addresses("10.0.0.0/27")
    assert filled(pool, 30) == [f"10.0.0.{number}" for number in [*range(17, 31), *range(1, 17)]]
    with pytest.raises(RangeFullError, match="range is full"):
        pool.find(dry_run=False)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("10.0.0.5", "provided IP is already allocated"),
        ("10.0.0.0", r"the provided IP \(10.0.0.0\) is not in the valid range. The range of valid IPs is 10.0.0.0/24"),
        ("10.0.0.255", "is not in the valid range"),
        ("10.0.1.1", "is not in the valid range"),
        ("fd00::1", "is not in the valid range"),
    ],
)
def test_addresses_that_cannot_be_had(address: str, message: str) -> None:
    pool = addresses("10.0.0.0/24")
    pool.hold(number("10.0.0.5"), ME)
    with pytest.raises(AllocationError, match=message):
        pool.check(address, dry_run=False)


def test_the_ends_of_the_range_and_of_its_bands_can_be_had() -> None:
    pool = addresses("10.96.0.0/16")
    wanted = ["10.96.0.1", "10.96.1.0", "10.96.1.1", "10.96.255.254"]
    for address in wanted:
        pool.check(address, dry_run=False)
        pool.hold(number(address), ME)
    assert [str(ip_address(number)) for number in sorted(pool.owners)] == wanted


def test_another_spelling_is_the_same_address() -> None:
    pool = addresses("fd00:10:96::/112")
    pool.hold(number("FD00:10:96:0::a"), ME)
    with pytest.raises(AllocationError):
        pool.check("fd00:10:96::a", dry_run=False)


def test_a_dry_run_looks_at_the_ranges_alone() -> None:
    pool = addresses("10.0.0.0/24")
    pool.hold(number("10.0.0.5"), ME)
    assert pool.find(dry_run=True) == "10.0.0.0"
    pool.check("10.0.0.5", dry_run=True)
    with pytest.raises(AllocationError):
        pool.check("10.0.1.5", dry_run=True)


def test_an_address_is_free_when_neither_a_service_nor_an_object_has_it() -> None:
    pool = addresses("10.0.0.0/24", "10.0.0.0/28", "10.0.1.0/24")
    used: list[list[int]] = []

    def note() -> None:
        used.append([range_.used for range_ in pool.ranges.values()])

    pool.hold(number("10.0.0.5"), ME)
    pool.reserve(number("10.0.0.5"))
    note()
    pool.unreserve(number("10.0.0.5"))
    note()
    pool.reserve(number("10.0.0.5"))
    pool.free(number("10.0.0.5"), OTHER)
    assert not pool.hold(number("10.0.0.5"), OTHER), "it is not the other's to free"
    pool.free(number("10.0.0.5"), ME)
    note()
    pool.unreserve(number("10.0.0.5"))
    note()
    assert used == [[1, 1, 0], [1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_several_ranges_are_filled_from_a_random_one_on() -> None:
    pool = addresses("10.0.0.0/30", "10.0.1.0/30", "10.0.2.0/30", choose=lambda n: 1 if n == 3 else 0)
    assert filled(pool, 6) == ["10.0.1.1", "10.0.1.2", "10.0.2.1", "10.0.2.2", "10.0.0.1", "10.0.0.2"]
    pool.set_ranges(dict.fromkeys(pool.ranges, False))
    with pytest.raises(RangeFullError):
        pool.find(dry_run=True)


@pytest.mark.parametrize(
    ("port", "message"),
    [
        (30080, "provided port is already allocated"),
        (29999, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
        (32768, "not in the valid range"),
        (-1, "not in the valid range"),
    ],
)
def test_ports_that_cannot_be_had(port: int, message: str) -> None:
    ports = Ports(range(30000, 32768), first, AllocatorMetrics())
    ports.hold(30080, ME)
    with pytest.raises(AllocationError, match=message):
        ports.find(port, ())


def test_a_write_gets_each_node_port_once() -> None:
    ports = Ports(range(30000, 32768), first, AllocatorMetrics())
    with pytest.raises(AllocationError, match="provided port is already allocated"):
        ports.find(30080, {30080})
    assert [ports.find(0, besides) for besides in ((), {30086})] == [30086, 30087]


def test_node_ports_run_out() -> None:
    ports = Ports(range(30000, 30004), last, AllocatorMetrics())
    for port in sorted(range(30000, 30004)):
        assert ports.hold(port, ME)
    with pytest.raises(RangeFullError):
        ports.find(0, ())
