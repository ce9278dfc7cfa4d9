"""PROXY headers, byte by byte."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from kdns.proxy.userspace.proxy_protocol import HEADERS

SIGNATURE = "0d0a0d0a000d0a515549540a"
ROWS = [
    ("v1", "192.0.2.7", 1234, "198.51.100.9", 80, b"PROXY TCP4 192.0.2.7 198.51.100.9 1234 80\r\n"),
    ("v1", "2001:db8::7", 65535, "2001:db8:5::9", 443, b"PROXY TCP6 2001:db8::7 2001:db8:5::9 65535 443\r\n"),
    ("v2", "192.0.2.7", 1234, "198.51.100.9", 80, f"{SIGNATURE} 21 11 000c c0000207 c6336409 04d2 0050"),
    (
        "v2",
        "2001:db8::7",
        65535,
        "2001:db8:5::9",
        443,
        f"{SIGNATURE} 21 21 0024 20010db8000000000000000000000007 20010db8000500000000000000000009 ffff 01bb",
    ),
]


@pytest.mark.parametrize(("version", "source", "source_port", "to", "port", "wanted"), ROWS)
def test_headers(version: str, source: str, source_port: int, to: str, port: int, wanted: bytes | str) -> None:
    got = HEADERS[version](ip_address(source), source_port, ip_address(to), port)
    assert got == (wanted if isinstance(wanted, bytes) else bytes.fromhex(wanted))


def test_the_longest_header_fits_into_what_the_text_allows() -> None:
    longest = ip_address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
    assert len(HEADERS["v1"](longest, 65535, longest, 65535)) <= 107
