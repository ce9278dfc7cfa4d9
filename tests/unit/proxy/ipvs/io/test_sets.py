"""Sets in the kernel, against a kernel of the test."""

from typing import cast

import pytest
from kernel_of_test import KernelOfTest

from kdns.errors import ApplyError
from kdns.netlink.io.ipset import IpSets
from kdns.netlink.ipset import Header, SetType
from kdns.proxy.ipvs.io.sets import add_missing, changed_sets, delete, make_room, set_type
from kdns.proxy.ipvs.sets import BITMAP_PORT, HASH_IP, HASH_IP_PORT, IpSet

NAME = "KUBE-CLUSTER-IP"
IP_PORT = SetType(HASH_IP_PORT, "IPv4", 65536)
PORTS = SetType(BITMAP_PORT, "IPv4", 0)


def over(kernel: KernelOfTest) -> IpSets:
    return cast("IpSets", kernel)


def wanted(*entries: str, kind: str = HASH_IP_PORT, most: int = 65536) -> dict[str, IpSet]:
    return {NAME: IpSet(NAME, kind, "IPv4", most, dict.fromkeys(entries))}


ONE, TWO, THREE = (f"10.96.0.{number},tcp:80" for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("there", "entries", "after", "surplus"),
    [
        ({}, [], set(), {}),
        ({}, [ONE, TWO], {ONE, TWO}, {}),
        ({NAME: (IP_PORT, {ONE})}, [ONE, TWO], {ONE, TWO}, {}),
        ({NAME: (IP_PORT, {ONE, THREE})}, [TWO], {ONE, TWO, THREE}, {NAME: {ONE, THREE}}),
    ],
)
def test_what_is_missing_is_added_and_the_rest_told(
    there: dict[str, tuple[SetType, set[str]]], entries: list[str], after: set[str], surplus: dict[str, set[str]]
) -> None:
    kernel = KernelOfTest(sets=there)
    assert add_missing(over(kernel), wanted(*entries)) == surplus
    assert kernel.sets == {NAME: (IP_PORT, after)}
    delete(over(kernel), surplus)
    assert kernel.sets[NAME][1] == set(entries)


def test_a_set_of_another_type_is_made_anew() -> None:
    kernel = KernelOfTest(sets={NAME: (SetType(HASH_IP, "IPv4"), {"10.96.0.1"})})
    add_missing(over(kernel), wanted(ONE))
    assert kernel.sets == {NAME: (IP_PORT, {ONE})}
    kernel = KernelOfTest(sets={NAME: (SetType(HASH_IP, "IPv4"), set())}, used={NAME})
    with pytest.raises(ApplyError, match=r"set KUBE-CLUSTER-IP: expected type hash:ip,port, got another one; destroy"):
        add_missing(over(kernel), wanted(ONE))


def test_a_set_that_is_too_small_is_replaced_with_its_entries() -> None:
    kernel = KernelOfTest(sets={NAME: (SetType(HASH_IP_PORT, "IPv4", 2), {THREE})}, used={NAME})
    assert add_missing(over(kernel), wanted(ONE, TWO, most=2)) == {NAME: {THREE}}
    assert kernel.sets == {NAME: (SetType(HASH_IP_PORT, "IPv4", 4), {ONE, TWO, THREE})}


def test_a_set_with_options_of_another_program_is_replaced() -> None:
    kernel = KernelOfTest(sets={NAME: (IP_PORT, {THREE})}, used={NAME}, odd={NAME})
    assert add_missing(over(kernel), wanted(ONE, TWO)) == {}
    assert kernel.sets == {NAME: (IP_PORT, {ONE, TWO})}


def test_entries_that_are_too_many_for_a_time_have_room() -> None:
    kernel = KernelOfTest(sets={NAME: (SetType(HASH_IP_PORT, "IPv4", 4), {ONE, TWO})}, used={NAME})
    add_missing(over(kernel), wanted(THREE, "10.96.0.4,tcp:80", most=4))
    assert kernel.sets[NAME][0].max_entries == 8


def test_a_change_may_need_room() -> None:
    kernel = KernelOfTest(sets={NAME: (SetType(HASH_IP_PORT, "IPv4", 4), {ONE, TWO})}, used={NAME})
    make_room(over(kernel), wanted(ONE, TWO, THREE, most=4)[NAME])
    assert kernel.sets[NAME][0].max_entries == 4
    make_room(over(kernel), wanted(ONE, TWO, THREE, "10.96.0.4,tcp:80", most=4)[NAME])
    assert kernel.sets == {NAME: (SetType(HASH_IP_PORT, "IPv4", 8), {ONE, TWO})}


@pytest.mark.parametrize(
    ("entries", "most", "room"), [(0, 65536, 65536), (57_344, 65536, 65536), (57_345, 65536, 131_072), (7, 8, 8)]
)
def test_room_of_a_set(entries: int, most: int, room: int) -> None:
    one = IpSet(NAME, HASH_IP_PORT, "IPv4", most, dict.fromkeys(map(str, range(entries))))
    assert set_type(one) == SetType(HASH_IP_PORT, "IPv4", room)
    assert set_type(IpSet(NAME, BITMAP_PORT, "IPv6")) == PORTS


def test_entries_of_a_set_that_is_gone_are_ignored() -> None:
    delete(over(KernelOfTest()), {"KUBE-GONE": [ONE]})


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({NAME: Header(IP_PORT, 2)}, ""),
        ({NAME: Header(IP_PORT, 1)}, "set KUBE-CLUSTER-IP has 1 entries, not 2"),
        ({}, "set KUBE-CLUSTER-IP is gone"),
    ],
)
def test_what_others_change_is_told(headers: dict[str, Header], reason: str) -> None:
    assert changed_sets(headers, {NAME: 2}) == reason
