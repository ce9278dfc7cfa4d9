"""Packets as rows: what is a query, what gets an error, and what gets silence (RFC 1035 §4.1, RFC 6891)."""

from struct import pack

import pytest
from dns_chain import read

from kdns.answers.answer import error_answer
from kdns.dns.query import Edns, Malformed, read_query
from kdns.dns.types import BADVERS, FORMERR, NOTIMP, type_label

RD = 0x0100
QR = 0x8000
NAME = b"\x03web\x04shop\x00"
QUESTION = NAME + pack("!HH", 1, 1)
OPT = b"\x00" + pack("!HHIH", 41, 1232, 0, 0)
END = 12 + len(QUESTION)
LONG = (b"\x3f" + b"a" * 63) * 3 + b"\x3e" + b"a" * 62 + b"\x00"
RECORD = b"\xc0\x0c" + pack("!HHIH", 1, 1, 5, 4) + b"\x0a\x00\x00\x01"


def packet(body: bytes = QUESTION, counts: tuple[int, int, int, int] = (1, 0, 0, 0), flags: int = RD) -> bytes:
    return pack("!HHHHHH", 7, flags, *counts) + body


def opt(payload_bytes: int = 1232, *, ttl: int = 0, rdata: bytes = b"", owner: bytes = b"\x00") -> bytes:
    return owner + pack("!HHIH", 41, payload_bytes, ttl, len(rdata)) + rdata


SILENCE = {
    "nothing": b"",
    "a byte": b"\x00",
    "less than a header": packet(b"")[:11],
    "an answer": packet(flags=QR | RD),
    "an answer without a question": packet(b"", (0, 0, 0, 0), QR),
    "an answer with an opcode": packet(flags=QR | 0x2800),
}
REFUSED = {
    "no question": (packet(b"", (0, 0, 0, 0)), FORMERR),
    "a question that is not counted": (packet(QUESTION, (0, 0, 0, 0)), FORMERR),
    "two questions": (packet(QUESTION * 2, (2, 0, 0, 0)), FORMERR),
    "a question that is missing": (packet(b""), FORMERR),
    "a name without an end": (packet(b"\x03web"), FORMERR),
    "a label longer than the packet": (packet(b"\x3fweb\x00"), FORMERR),
    "a name and no type": (packet(NAME), FORMERR),
    "a name and half a class": (packet(QUESTION[:-1]), FORMERR),
    "a pointer in the question": (packet(b"\xc0\x0c" + pack("!HH", 1, 1)), FORMERR),
    "a pointer behind a label": (packet(b"\x01a\xc0\x0c" + pack("!HH", 1, 1)), FORMERR),
    "a label of another kind": (packet(b"\x41a\x00" + pack("!HH", 1, 1)), FORMERR),
    "a name of 256 bytes": (packet(LONG + pack("!HH", 1, 1)), FORMERR),
    "an additional record that is missing": (packet(QUESTION, (1, 0, 0, 1)), FORMERR),
    "an answer record that is missing": (packet(QUESTION, (1, 1, 0, 0)), FORMERR),
    "a record cut in its head": (packet(QUESTION + RECORD[:9], (1, 1, 0, 0)), FORMERR),
    "a record cut in its rdata": (packet(QUESTION + RECORD[:-1], (1, 1, 0, 0)), FORMERR),
    "an OPT cut short": (packet(QUESTION + OPT[:-1], (1, 0, 0, 1)), FORMERR),
    "an OPT with less rdata than it says": (packet(QUESTION + OPT[:-2] + b"\x00\x01", (1, 0, 0, 1)), FORMERR),
    "two OPTs": (packet(QUESTION + OPT * 2, (1, 0, 0, 2)), FORMERR),
    "an OPT of another name": (packet(QUESTION + opt(owner=b"\xc0\x0c"), (1, 0, 0, 1)), FORMERR),
    "an OPT among the answers": (packet(QUESTION + OPT, (1, 1, 0, 0)), FORMERR),
    "an OPT in the authority section": (packet(QUESTION + OPT, (1, 0, 1, 0)), FORMERR),
    "a question for OPT": (packet(NAME + pack("!HH", 41, 1)), FORMERR),
    "a version of EDNS that is not there yet": (packet(QUESTION + opt(ttl=1 << 16), (1, 0, 0, 1)), BADVERS),
    "IQUERY": (packet(flags=1 << 11), NOTIMP),
    "STATUS": (packet(flags=2 << 11), NOTIMP),
    "UPDATE": (packet(flags=5 << 11), NOTIMP),
    "an opcode and nonsense behind it": (packet(b"\xff" * 9, (9, 9, 9, 9), 15 << 11), NOTIMP),
}  # fmt: skip


@pytest.mark.parametrize("raw", SILENCE.values(), ids=SILENCE.keys())
def test_silence(raw: bytes) -> None:
    assert read_query(raw) == Malformed(None)


@pytest.mark.parametrize(("raw", "rcode"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals(raw: bytes, rcode: int) -> None:
    question = read_query(raw)
    assert isinstance(question, Malformed)
    assert question.rcode == rcode
    response = error_answer(raw, rcode, question.question_end, question.edns).wire(raw)
    flags = int.from_bytes(response[2:4], "big")
    assert response[:2] == raw[:2]
    assert flags & 0x8000, "an answer"
    assert flags & 0x7900 == int.from_bytes(raw[2:4], "big") & 0x7900, "the same opcode and RD"
    assert not flags & 0x06A0, "no AA, TC, RA or AD"
    assert flags & 15 == rcode & 15
    if rcode == BADVERS:
        assert response[12:END] == QUESTION
        assert response[END:] == b"\x00" + pack("!HHBBHH", 41, 1232, 1, 0, 0, 0)


@pytest.mark.parametrize(
    ("raw", "edns", "is_plain"),
    [
        (packet(), None, True),
        (packet(QUESTION + OPT, (1, 0, 0, 1)), Edns(1232, False, 0), True),
        (packet(QUESTION + opt(0), (1, 0, 0, 1)), Edns(512, False, 0), True),
        (packet(QUESTION + opt(511), (1, 0, 0, 1)), Edns(512, False, 0), True),
        (packet(QUESTION + opt(65535, ttl=0x8000), (1, 0, 0, 1)), Edns(65535, True, 0), True),
        (packet(QUESTION + opt(rdata=b"\x00\x0a\x00\x00"), (1, 0, 0, 1)), Edns(1232, False, 0, ((10, b""),)), False),
        (packet(QUESTION + RECORD, (1, 0, 0, 1)), None, False),
        (packet(QUESTION + RECORD + OPT, (1, 0, 0, 2)), Edns(1232, False, 0), False),
        (packet(QUESTION + RECORD + OPT, (1, 1, 0, 1)), Edns(1232, False, 0), False),
        (packet(QUESTION + b"junk"), None, False),
        (packet(QUESTION + OPT + b"junk", (1, 0, 0, 1)), Edns(1232, False, 0), False),
    ],
    ids=str,
)
def test_queries(raw: bytes, edns: Edns | None, is_plain: bool) -> None:
    question = read(raw)
    assert (question.labels, question.qtype, question.qclass, question.question_end) == ((b"web", b"shop"), 1, 1, END)
    assert (question.edns, question.is_plain) == (edns, is_plain)


@pytest.mark.parametrize(
    ("wire", "labels", "name"),
    [
        (b"\x00", (), "."),
        (b"\x03WeB\x00", (b"web",), "WeB."),
        (b"\x01.\x01\\\x00", (b".", b"\\"), "\\..\\\\."),
        (b"\x02\xc3\x84\x00", (b"\xc3\x84",), "\\195\\132."),
        (b"\x3f" + b"a" * 63 + b"\x00", (b"a" * 63,), "a" * 63 + "."),
    ],
)
def test_names_of_questions(wire: bytes, labels: tuple[bytes, ...], name: str) -> None:
    question = read(packet(wire + pack("!HH", 28, 255)))
    assert (question.labels, question.qtype, question.qclass) == (labels, 28, 255)
    assert question.spelled_name == name


def test_types_have_the_labels_of_coredns_in_metrics() -> None:
    assert [type_label(qtype) for qtype in (1, 64, 65, 251, 255, 99, 257)] == [
        "A", "SVCB", "HTTPS", "IXFR", "ANY", "other", "other",
    ]  # fmt: skip
