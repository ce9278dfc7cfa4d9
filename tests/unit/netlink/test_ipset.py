"""Messages of ipset as bytes, and entries as text."""

from collections.abc import Sequence

import pytest

from kdns.netlink.io.ipset import IpSets, error_text
from kdns.netlink.ipset import SetType, changes, encoded, entry_text
from kdns.netlink.ipvs import VirtualServerKey, identity_of
from kdns.netlink.protocol import Change, attribute, attribute_spans, attributes
from kdns.netlink.uapi import (
    IPSET_ATTR_ADT,
    IPSET_ATTR_REVISION,
    IPSET_ATTR_TYPENAME,
    IPSET_CMD_ADD,
    IPSET_ERR_FIND_TYPE,
)

ENTRIES = [
    "30080",
    "10.96.0.1",
    "10.96.0.1,tcp:80",
    "10.96.0.1,sctp:3868",
    "10.0.0.5,udp:53,10.0.0.5",
    "10.96.0.1,tcp:443,10.1.0.0/16",
    "fd00::a",
    "fd00::a,udp:53",
    "fd01::5,tcp:8080,fd01::5",
    "fd00::a,tcp:443,fd02::/64",
]
BYTES = {
    "30080": "06000440 7580 0000",
    "10.96.0.1,tcp:80": "0c000180 08000140 0a600001 06000440 0050 0000 05000700 06 000000",
    "10.96.0.1,tcp:443,10.1.0.0/16": (
        "0c000180 08000140 0a600001 06000440 01bb 0000 05000700 06 000000 0c001480 08000140 0a010000 05001500 10 000000"
    ),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_is_read_as_it_was_written(entry: str) -> None:
    assert entry_text(attributes(encoded(entry))) == entry


def test_what_is_no_address_is_never_sent_as_zeros() -> None:
    for text in ("", "10.96.0.x"):
        with pytest.raises(ValueError, match="expected an IP address"):
            encoded(f"{text},tcp:80")
        with pytest.raises(ValueError, match="expected an IP address"):
            identity_of(VirtualServerKey(text, 80, "TCP"))


@pytest.mark.parametrize(("entry", "expected"), BYTES.items())
def test_bytes_of_an_entry(entry: str, expected: str) -> None:
    assert encoded(entry) == bytes.fromhex(expected)


@pytest.mark.parametrize(("number", "messages"), [(0, []), (1, [1]), (400, [400]), (900, [400, 400, 100])])
def test_one_message_has_many_entries(number: int, messages: list[int]) -> None:
    entries = [f"10.96.{at // 256}.{at % 256},tcp:80" for at in range(number)]
    found: list[list[str]] = []
    for kind, _, body in changes(IPSET_CMD_ADD, "KUBE-CLUSTER-IP", entries):
        assert kind == 6 << 8 | IPSET_CMD_ADD
        assert len(body) < 1 << 16
        spans = [(start, end) for kind, start, end in attribute_spans(body, 4, len(body)) if kind == IPSET_ATTR_ADT]
        ((start, end),) = spans
        found.append([entry_text(attributes(body[at:to])) for _, at, to in attribute_spans(body, start, end)])
    assert [len(each) for each in found] == messages
    assert [entry for each in found for entry in each] == entries


class KernelOfTest:
    """A kernel with revision 6 of one type."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def ask(self, _kind: int, body: bytes) -> bytes:
        if attributes(body, 4)[IPSET_ATTR_TYPENAME] != b"hash:ip,port\0":
            raise OSError(IPSET_ERR_FIND_TYPE, "no such type")
        return bytes(4) + attribute(IPSET_ATTR_REVISION, b"\x06")

    def do_all(self, messages: Sequence[Change]) -> dict[int, int]:
        self.sent += [body for _, _, body in messages]
        return {}


def test_a_set_has_the_latest_revision() -> None:
    """ipset(8) cannot list a set of revision 0 with an entry of SCTP."""
    kernel = KernelOfTest()
    IpSets(kernel).create("KUBE-CLUSTER-IP", SetType("hash:ip,port", "IPv4"))  # type: ignore[arg-type]
    assert [attributes(body, 4)[IPSET_ATTR_REVISION] for body in kernel.sent] == [b"\x06"]


def test_a_type_that_the_kernel_lacks_has_a_reason() -> None:
    sets = IpSets(KernelOfTest())  # type: ignore[arg-type]
    assert sets.lacks("hash:ip,port") == ""
    assert sets.lacks("hash:ip") == "the kernel has no sets of this type"


def test_errors_have_words() -> None:
    assert error_text(IPSET_ERR_FIND_TYPE) == "the kernel has no sets of this type"
    assert error_text(2) == "No such file or directory"
