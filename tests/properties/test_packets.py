"""Any bytes get a valid response to themselves, or silence; what is asked well is answered right amid them."""

import dnslib
import pytest
from dns_chain import cluster_server, respond
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kdns.cluster.objects import EndpointSlice, Meta, Namespace, Service, ServiceMeta, ServiceSpec
from kdns.cluster.state import State
from kdns.dns.message import query
from kdns.dnsserver.blocks import Server
from kdns.plugins.sources.kubernetes.options import Options

NAME = "web.default.svc.cluster.local"
GOOD = {
    (NAME, "A"): ("NOERROR", ["10.96.0.1"]),
    (NAME, "AAAA"): ("NOERROR", []),
    ("svc.cluster.local", "A"): ("NOERROR", []),
    ("no.default.svc.cluster.local", "A"): ("NXDOMAIN", []),
    (f"{NAME}.default.svc.cluster.local", "A"): ("NXDOMAIN", []),
    ("1.0.96.10.in-addr.arpa", "PTR"): ("NOERROR", [f"{NAME}."]),
}
HEADER = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
QUESTION = query(NAME, 1)[12:]
OPT = b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"


@pytest.fixture(scope="module")
def server() -> Server:
    state = State(synced={Namespace, Service, EndpointSlice})
    state.upsert(Namespace(Meta("default")))
    state.upsert(Service(ServiceMeta("web", "default"), ServiceSpec(cluster_ip="10.96.0.1")))
    zones = Options(zones=("cluster.local.", "in-addr.arpa.", "ip6.arpa."))
    return cluster_server(state, zones)[0]


def spelled(name: str, capitals: list[bool]) -> str:
    return "".join(letter.upper() if capital else letter for letter, capital in zip(name, capitals, strict=False))


def assert_valid(packet: bytes, response: bytes) -> None:
    if not response:
        assert len(packet) < 12 or packet[2] & 0x80
        return
    assert not packet[2] & 0x80, "an answer got an answer"
    assert response[:2] == packet[:2]
    assert response[2] & 0x80
    assert response[2] & 0x78 == packet[2] & 0x78
    try:
        got = dnslib.DNSRecord.parse(response)
    except dnslib.DNSError as error:
        assert "Invalid label" in str(error)  # noqa: PT017 - labels beyond ASCII are DNS, but not dnslib
        return
    if got.questions:
        end = 12 + len(question_bytes(response))
        assert response[12:end] == packet[12:end]
    else:
        assert not got.rr


def question_bytes(packet: bytes) -> bytes:
    end = 12
    while packet[end]:
        end += packet[end] + 1
    return packet[12 : end + 5]


@settings(max_examples=4 * settings().max_examples)
@given(packet=st.binary(max_size=100), headed=st.booleans(), proto=st.sampled_from(["udp", "tcp"]))
@example(packet=b"", headed=False, proto="udp")
@example(packet=b"", headed=True, proto="udp")
@example(packet=b"\xc0\x0c\x00\x01\x00\x01", headed=True, proto="udp")
@example(packet=b"\x3f" + b"a" * 63, headed=True, proto="udp")
@example(packet=b"\x01a" * 127 + b"\x00\x00\x01\x00\x01", headed=True, proto="udp")
@example(packet=b"\x01a" * 128 + b"\x00\x00\x01\x00\x01", headed=True, proto="udp")
@example(packet=b"\x03a.b\x00\x00\x01\x00\x01", headed=True, proto="tcp")
@example(packet=b"\x00\x00\x29\x00\x01", headed=True, proto="udp")
def test_any_bytes(server: Server, packet: bytes, headed: bool, proto: str) -> None:
    packet = HEADER + packet if headed else packet
    assert_valid(packet, respond(server, packet, proto))


@settings(max_examples=4 * settings().max_examples)
@given(
    st.sampled_from(tuple(GOOD)),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 80),
    st.binary(max_size=20),
)
def test_changed_cut_and_lengthened_queries(
    server: Server, good: tuple[str, str], edns: bool, changes: list[tuple[int, int]], cut: int, more: bytes
) -> None:
    packet = bytearray(query(good[0], getattr(dnslib.QTYPE, good[1]), payload_bytes=1232 if edns else 0))
    for at, value in changes:
        if at < len(packet):
            packet[at] = value
    for message in (bytes(packet), bytes(packet[:cut]), bytes(packet) + more):
        assert_valid(message, respond(server, message, "udp"))


@settings(max_examples=4 * settings().max_examples)
@given(
    st.sampled_from(tuple(GOOD)),
    st.lists(st.booleans(), min_size=60, max_size=60),
    st.sampled_from([0, 512, 4096]),
    st.lists(st.binary(max_size=60), max_size=4),
    st.sampled_from(["udp", "tcp"]),
)
def test_a_good_question_is_answered_right_amid_noise(
    server: Server, good: tuple[str, str], capitals: list[bool], payload_bytes: int, noise: list[bytes], proto: str
) -> None:
    name = spelled(good[0], capitals)
    packet = query(name, getattr(dnslib.QTYPE, good[1]), payload_bytes=payload_bytes)
    for one in noise:
        respond(server, one, proto)
    response = respond(server, packet, proto)
    assert response
    assert_valid(packet, response)
    got = dnslib.DNSRecord.parse(response)
    assert (dnslib.RCODE[got.header.rcode], [str(record.rdata) for record in got.rr]) == GOOD[good]
    assert str(got.q.qname) == f"{name}."


CASES: dict[str, tuple[bytes, int | None]] = {
    "an answer": (b"\x12\x34\x81" + HEADER[3:] + QUESTION, None),
    "shorter than a header": (HEADER[:11], None),
    "only a header": (HEADER, 1),
    "no question": (b"\x12\x34\x01\x00" + bytes(8), 1),
    "two questions": (HEADER[:5] + b"\x02" + HEADER[6:] + QUESTION + QUESTION, 1),
    "opcode 4, NOTIFY": (b"\x12\x34\x20\x00" + HEADER[4:] + QUESTION, 4),
    "opcode 5, UPDATE": (b"\x12\x34\x28\x00" + HEADER[4:] + QUESTION, 4),
    "class CH": (HEADER + QUESTION[:-1] + b"\x03", 5),
    "AXFR": (HEADER + QUESTION[:-4] + b"\x00\xfc\x00\x01", 5),
    "IXFR": (HEADER + QUESTION[:-4] + b"\x00\xfb\x00\x01", 5),
    "two OPT": (HEADER[:11] + b"\x02" + QUESTION + OPT + OPT, 1),
    "OPT in the answer": (HEADER[:7] + b"\x01" + HEADER[8:] + QUESTION + OPT, 1),
    "OPT whose owner is not the root": (HEADER[:11] + b"\x01" + QUESTION + b"\x01a" + OPT, 1),
    "OPT cut short": (HEADER[:11] + b"\x01" + QUESTION + OPT[:-1], 1),
    "EDNS version 1": (HEADER[:11] + b"\x01" + QUESTION + OPT[:6] + b"\x01" + OPT[7:], 16),
    "bytes behind the question": (HEADER + QUESTION + b"junk", 0),
    "as it should be": (HEADER + QUESTION, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_rcodes(server: Server, case: str) -> None:
    packet, rcode = CASES[case]
    response = respond(server, packet, "udp")
    assert_valid(packet, response)
    if not response:
        assert rcode is None
        return
    got = dnslib.DNSRecord.parse(response)
    extended = next((record.ttl >> 24 for record in got.ar if record.rtype == dnslib.QTYPE.OPT), 0)
    assert extended << 4 | got.header.rcode == rcode
