"""One spelling for each address, the one that Python's ipaddress knows, and two more that Kubernetes reads."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdns.net import canonical_address, parse_network

octets = st.one_of(st.integers(0, 300).map(str), st.sampled_from(("", "256", "٣", " 1", "1\n")))
texts = st.one_of(
    st.ip_addresses().map(str),
    st.ip_addresses(v=6).map(lambda address: address.exploded.upper()),
    st.lists(octets, min_size=3, max_size=5).map(".".join),
    st.text(max_size=20),
)


@given(texts)
def test_it_is_what_ipaddress_writes(text: str) -> None:
    try:
        address = None if "%" in text else ip_address(text)
    except ValueError:
        address = None
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    assert canonical_address(text) == (str(address) if address else "")


@given(st.ip_addresses(v=4), st.lists(st.integers(0, 3), min_size=4, max_size=4), st.sampled_from(("", "::ffff:")))
def test_padded_numbers_are_decimal_and_ipv4_may_be_in_ipv6_notation(
    address: IPv4Address, zeros: list[int], before: str
) -> None:
    padded = ".".join("0" * count + part for count, part in zip(zeros, str(address).split("."), strict=True))
    assert canonical_address(before + padded) == str(address)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (" 10.1.2.3/8 ", "10.0.0.0/8"),
        ("010.001.000.000/16", "10.1.0.0/16"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:0:0/95", "::fffe:0:0/95"),
        ("fd00:0010::/64", "fd00:10::/64"),
        ("fe80::%eth0/64", None),
        ("10.0.0.0/33", None),
        ("10.0.0/8", None),
    ],
)
def test_networks_are_read_as_addresses_are(text: str, wanted: str | None) -> None:
    assert (str(found) if (found := parse_network(text)) else None) == wanted
