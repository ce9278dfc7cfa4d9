"""Cluster IPs and node ports: bands, order, errors, transactions."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_network

import pytest

from kdns.controlplane.kinds.service.allocator import (
    AllocationError,
    AllocatorMetrics,
    Ports,
    RangeFullError,
    Transaction,
    band,
)
from kdns.controlplane.kinds.service.cluster_ips import Addresses

ME, OTHER = ("default", "me"), ("default", "other")


def first(_: int) -> int:
    return 0


def last(n: int) -> int:
    return n - 1


def addresses(*cidrs: str, choose: Callable[[int], int] = first) -> Addresses:
    pool = Addresses(choose, AllocatorMetrics())
    pool.set_ranges({ip_network(cidr): True for cidr in cidrs})
    return pool


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
    assert addresses(cidr, choose=choose).allocate_next(ME, Transaction()) == expected


def test_the_lower_band_comes_last_and_then_nothing() -> None:
    pool = addresses("10.0.0.0/27")
    got = [pool.allocate_next(ME, Transaction()) for _ in range(30)]
    assert got == [f"10.0.0.{number}" for number in [*range(17, 31), *range(1, 17)]]
    with pytest.raises(RangeFullError, match="range is full"):
        pool.allocate_next(ME, Transaction())


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
    pool.allocate("10.0.0.5", ME, Transaction())
    with pytest.raises(AllocationError, match=message):
        pool.allocate(address, ME, Transaction())


def test_the_ends_of_the_range_and_of_its_bands_can_be_had() -> None:
    pool = addresses("10.96.0.0/16")
    wanted = ["10.96.0.1", "10.96.1.0", "10.96.1.1", "10.96.255.254"]
    for address in wanted:
        pool.allocate(address, ME, Transaction())
    assert [str(ip_address(number)) for number in sorted(pool.owners)] == wanted


def test_another_spelling_is_the_same_address() -> None:
    pool = addresses("fd00:10:96::/112")
    pool.allocate("FD00:10:96:0::00a", ME, Transaction())
    with pytest.raises(AllocationError):
        pool.allocate("fd00:10:96::a", ME, Transaction())


def test_a_dry_run_takes_nothing() -> None:
    pool = addresses("10.0.0.0/24")
    assert pool.allocate_next(ME, Transaction(), dry_run=True) == "10.0.0.0"
    pool.allocate("10.0.0.5", ME, Transaction(), dry_run=True)
    with pytest.raises(AllocationError):
        pool.allocate("10.0.1.5", ME, Transaction(), dry_run=True)
    assert not pool.owners


def test_revert_gives_back_and_keeps_what_was_to_go() -> None:
    pool = addresses("10.0.0.0/24")
    pool.allocate("10.0.0.1", ME, Transaction())
    txn = Transaction()
    pool.allocate("10.0.0.2", ME, txn)
    pool.release("10.0.0.1", ME, txn)
    txn.revert()
    txn.commit()
    assert [pool.remember(f"10.0.0.{number}", OTHER) for number in (1, 2)] == [False, True]


def test_commit_keeps_and_lets_go() -> None:
    pool = addresses("10.0.0.0/24")
    pool.allocate("10.0.0.1", ME, Transaction())
    txn = Transaction()
    pool.allocate("10.0.0.2", ME, txn)
    pool.release("10.0.0.1", ME, txn)
    txn.commit()
    txn.revert()
    assert [pool.remember(f"10.0.0.{number}", OTHER) for number in (1, 2)] == [True, False]


def test_an_address_is_free_when_neither_a_service_nor_an_object_has_it() -> None:
    pool = addresses("10.0.0.0/24", "10.0.0.0/28", "10.0.1.0/24")
    used: list[list[int]] = []

    def note() -> None:
        used.append([each.used for each in pool.ranges.values()])

    txn = Transaction()
    pool.allocate("10.0.0.5", ME, Transaction())
    pool.reserve("10.0.0.5")
    note()
    pool.unreserve("10.0.0.5")
    note()
    pool.reserve("10.0.0.5")
    pool.release("10.0.0.5", OTHER, txn)
    txn.commit()
    assert pool.owners, "it is not the other's to release"
    pool.release("10.0.0.5", ME, txn)
    txn.commit()
    note()
    pool.unreserve("10.0.0.5")
    note()
    assert used == [[1, 1, 0], [1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_several_ranges_are_filled_from_a_random_one_on() -> None:
    pool = addresses("10.0.0.0/30", "10.0.1.0/30", "10.0.2.0/30", choose=lambda n: 1 if n == 3 else 0)
    got = [pool.allocate_next(ME, Transaction()) for _ in range(6)]
    assert got == ["10.0.1.1", "10.0.1.2", "10.0.2.1", "10.0.2.2", "10.0.0.1", "10.0.0.2"]
    pool.set_ranges(dict.fromkeys(pool.ranges, False))
    with pytest.raises(RangeFullError):
        pool.allocate_next(ME, Transaction(), dry_run=True)


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
    ports = Ports(range(30000, 32768), first)
    ports.allocate(30080, ME, Transaction())
    with pytest.raises(AllocationError, match=message):
        ports.allocate(port, ME, Transaction())


def test_node_ports_begin_above_their_band() -> None:
    ports = Ports(range(30000, 32768), first)
    assert [ports.allocate_next(ME, Transaction()) for _ in range(2)] == [30086, 30087]


def test_node_ports_run_out() -> None:
    ports = Ports(range(30000, 30004), last)
    assert sorted(ports.allocate_next(ME, Transaction()) for _ in range(4)) == [30000, 30001, 30002, 30003]
    with pytest.raises(RangeFullError):
        ports.allocate_next(ME, Transaction())
