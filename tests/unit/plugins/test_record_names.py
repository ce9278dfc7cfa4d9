"""Addresses in names: dashes, octets and nibbles."""

from ipaddress import ip_address

import pytest

from kdns.dns.names import labels_of, reverse_range, reversed_address
from kdns.plugins.sources.kubernetes.dashed import dashed, dashed_ipv4, undashed


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        (".", ()),
        ("a.", (b"a",)),
        ("a.b.", (b"a", b"b")),
        ("a.b", (b"a", b"b")),
        ("A.b.", (b"A", b"b")),
        ("a\\.b.c.", (b"a.b", b"c")),
        ("a\\\\.b.", (b"a\\", b"b")),
        ("\\255\\000.", (b"\xff\x00",)),
        ("a\\.", (b"a.",)),
        ("\xc4.", (b"\xc4",)),
    ],
)
def test_labels(name: str, labels: tuple[bytes, ...]) -> None:
    assert labels_of(name) == labels


ADDRESSES = [
    ("10.1.2.3", "10-1-2-3"),
    ("0.0.0.0", "0-0-0-0"),
    ("255.255.255.255", "255-255-255-255"),
    ("fd00::1", "fd00--1"),
    ("fd00::", "fd00--0"),
    ("::1", "0--1"),
    ("::", "0--0"),
    ("::a:b", "0--a-b"),
    ("1:2:3:4:5:6:7:8", "1-2-3-4-5-6-7-8"),
    ("1::4:5:6:7:8", "1--4-5-6-7-8"),
    ("fd00:0:0:1::9", "fd00-0-0-1--9"),
]


@pytest.mark.parametrize(("address", "label"), ADDRESSES)
def test_dashes_there_and_back(address: str, label: str) -> None:
    assert dashed(ip_address(address).packed) == label
    assert undashed(label) == ip_address(address).packed


@pytest.mark.parametrize(
    "label",
    ["", "-", "--", "--1", "1--", "fd00--", "1-2-3", "1-2-3-4-5", "1-2-3-256", "01-2-3-4", "1-2-3-x", "web", "1.2.3.4",
     "1-2-3-4-5-6-7-8-9", "1--2--3", "12345--1", "FD00--1", "\u0661-2-3-4", "1-2-3-4\n", "fd00--1%eth0"],
)  # fmt: skip
def test_no_dashed_address(label: str) -> None:
    assert undashed(label) == b""


def labels(text: str) -> tuple[bytes, ...]:
    return tuple(text.encode().split(b"."))


@pytest.mark.parametrize("address", ["10.1.2.3", "0.0.0.0", "255.0.20.200", "fd00::1", "::", "2001:db8::ff"])
def test_reverse_names_of_addresses(address: str) -> None:
    name = ip_address(address).reverse_pointer
    assert reversed_address(labels(name)) == ip_address(address).packed


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("in-addr.arpa", "0.0.0.0", "255.255.255.255"),
        ("10.in-addr.arpa", "10.0.0.0", "10.255.255.255"),
        ("2.1.10.in-addr.arpa", "10.1.2.0", "10.1.2.255"),
        ("ip6.arpa", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("d.f.ip6.arpa", "fd00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("0.d.f.ip6.arpa", "fd00::", "fd0f:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ],
)
def test_shorter_reverse_names_are_ranges(name: str, first: str, last: str) -> None:
    assert reverse_range(labels(name)) == (ip_address(first).packed, ip_address(last).packed)
    assert reversed_address(labels(name)) is None


@pytest.mark.parametrize(
    "name",
    ["256.in-addr.arpa", "01.in-addr.arpa", "00.in-addr.arpa", "0x1.in-addr.arpa", "x.in-addr.arpa", "-1.in-addr.arpa",
     "1.2.3.4.5.in-addr.arpa", "1e1.in-addr.arpa", "1000.in-addr.arpa", "\u0661.in-addr.arpa", "\xb2.in-addr.arpa",
     "g.ip6.arpa", "F.ip6.arpa", "10.ip6.arpa", ".".join("0" * 33) + ".ip6.arpa", "cluster.local", "arpa", "1.arpa"],
)  # fmt: skip
def test_no_reverse_names(name: str) -> None:
    assert reverse_range(labels(name)) is None
    assert reversed_address(labels(name)) is None


def test_labels_of_ipv4_addresses_are_those_of_each() -> None:
    addresses = [ip_address(text).packed for text, _ in ADDRESSES if "." in text and ":" not in text]
    assert dashed_ipv4(addresses) == [*map(dashed, addresses)]
    assert len(addresses) == 3
    assert dashed_ipv4([]) == []
