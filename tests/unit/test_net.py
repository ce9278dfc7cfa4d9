"""Addresses and host:port texts."""

from ipaddress import ip_address, ip_network
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdns import net


@pytest.mark.parametrize(
    ("text", "address", "unmapped", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"),
        ("010.000.0.01", "10.0.0.1", "10.0.0.1", "10.0.0.1"),
        ("FD00::0001", "fd00::1", "fd00::1", "fd00::1"),
        ("::ffff:10.0.0.1", "::ffff:a00:1", "10.0.0.1", "10.0.0.1"),
        ("::ffff:010.0.0.1", "::ffff:a00:1", "10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", None, None, ""),
        ("::00000012:1.2.3.4", None, None, ""),
        ("10.0.0", None, None, ""),
        ("0x0a.0.0.1", None, None, ""),
        ("host", None, None, ""),
        ("", None, None, ""),
    ],
)
def test_addresses(text: str, address: str | None, unmapped: str | None, canonical: str) -> None:
    assert net.parse_address(text) == (ip_address(address) if address else None)
    assert net.parse_unmapped_address(text) == (ip_address(unmapped) if unmapped else None)
    assert net.canonical_address(text) == canonical


def test_packed_addresses() -> None:
    packed = [net.packed(text) for text in ("10.0.0.1", "fd00::1", "None", "", "10.0.0", "host")]
    assert packed == [b"\x0a\0\0\1", ip_address("fd00::1").packed, b"", b"", b"", b""]
    assert [net.unpacked(each) for each in packed[:2]] == ["10.0.0.1", "fd00::1"]


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.1.2.3/8", "10.0.0.0/8"),
        (" 010.0.0.0/08 ", "10.0.0.0/8"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::/0", "::/0"),
        ("fe80::%1/64", None),
        ("10.0.0.0/33", None),
        ("shop", None),
    ],
)
def test_networks(text: str, network: str | None) -> None:
    assert net.parse_network(text) == (ip_network(network) if network else None)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("127.8.8.8", True),
        ("[::1]", True),
        ("::1", True),
        ("127.example.org", False),
        ("localhost.example.org", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_hosts(host: str, is_loopback: bool) -> None:
    assert net.is_loopback(host) is is_loopback


def test_families() -> None:
    assert [net.family_of(ip_address(each)) for each in ("10.0.0.1", "::1")] == ["IPv4", "IPv6"]
    assert [net.family_of(ip_network(each)) for each in ("10.0.0.0/8", "::/0")] == ["IPv4", "IPv6"]
    assert [net.family_of_text(each) for each in ("10.0.0.1", "::1")] == ["IPv4", "IPv6"]
    assert [net.is_link_local_ipv6(ip_address(each)) for each in ("fe80::1", "169.254.0.1", "fd00::1")] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("10.0.0.1:53", ("10.0.0.1", "53")),
        ("[::1]:53", ("::1", "53")),
        ("localhost:http", ("localhost", "http")),
        (":53", ("", "53")),
        ("localhost:", ("localhost", "")),
        ("::1:53", None),
        ("[::1]", None),
        ("10.0.0.1", None),
    ],
)
def test_splitting_host_and_port(text: str, parts: tuple[str, str] | None) -> None:
    assert net.split_host_port(text) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("10.0.0.1", ("10.0.0.1", None)),
        ("10.0.0.1:53", ("10.0.0.1", "53")),
        ("[fd00::1]:53", ("fd00::1", "53")),
        ("[fd00::1]", ("fd00::1", None)),
        ("fd00::1", ("fd00::1", None)),
        ("localhost:", ("localhost", "")),
        ("[::1", ("[::1", None)),
        ("", ("", None)),
    ],
)
def test_splitting_host_and_optional_port(text: str, parts: tuple[str, str | None]) -> None:
    assert net.split_optional_port(text) == parts


def test_joining_host_and_port() -> None:
    assert str(net.HostPort("10.0.0.1", 53)) == "10.0.0.1:53"
    assert net.join_host_port("fd00::1", 53) == "[fd00::1]:53"
    assert net.bracketed("example.org") == "example.org"


@pytest.mark.parametrize(
    ("text", "port"), [("0", 0), ("65535", 65535), ("65536", None), ("9" * 5000, None), ("٣", None), ("", None)]
)
def test_ports(text: str, port: int | None) -> None:
    assert net.parse_port(text) == port


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("", ""),
        ("2001:db8:0:7::1", b"\x20\x01\x0d\xb8\0\0\0\7"),
        ("2001:db8:0:7:8::", b"\x20\x01\x0d\xb8\0\0\0\7"),
        ("fe80::1%eth0", b"\xfe\x80\0\0\0\0\0\0"),
    ],
)
def test_whom_an_address_stands_for(address: str, client: str | bytes) -> None:
    assert net.client_of(address) == client


def test_special_addresses_are_named_as_kubernetes_does() -> None:
    texts = "0.0.0.0", "224.0.0.1", "ff02::1", "fe80::1", "255.255.255.255", "127.0.0.1", "192.0.2.1"
    assert [net.special_purpose(ip_address(text)) for text in texts] == [
        "the unspecified address",
        "a multicast address",
        "a multicast address",
        "a link-local address",
        "the broadcast address",
        "",
        "",
    ]


@pytest.mark.parametrize("family", [4, 6])
@given(st.data())
def test_whatever_is_special_is_parsed(family: Literal[4, 6], data: st.DataObject) -> None:
    address = data.draw(st.ip_addresses(v=family))  # special addresses are drawn often
    if net.special_purpose(address) or address.is_loopback:
        assert net.may_be_special(str(address))


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        *((text, True) for text in ("0.0.0.0", "127.9.9.9", "169.254.0.1", "224.0.0.1", "239.255.255.255", "ff02::1")),
        *((text, True) for text in ("255.255.255.255", "::", "::1", "fe80::1", "febf::1")),
        *((text, False) for text in ("10.1.0.2", "1.0.0.127", "192.0.2.1", "223.255.255.255", "fd00::1", "2001:db8::")),
    ],
)
def test_only_what_may_be_special_is_parsed(address: str, wanted: bool) -> None:
    assert net.may_be_special(address) is wanted
