"""Names and records to bytes: limits, pointers, what is never compressed, and the client's spelling."""

from struct import pack

import pytest
from decoded_message import decode
from dns_chain import read

from kdns.answers.answer import compile_answer
from kdns.answers.response import Response, ZoneSoa
from kdns.dns.encode import MAX_OFFSET, Names, encode_opt, encode_section
from kdns.dns.message import query
from kdns.dns.names import encode_name, labels_of, read_name, skip_name
from kdns.dns.query import AA, Edns
from kdns.dns.rdata import character_strings
from kdns.dns.rrset import RRset, Soa, Srv
from kdns.dns.types import CNAME, DNAME, NS, NXDOMAIN, PTR, SOA, SRV, TXT, A

ZONE = (b"cluster", b"local")
ASKED = (b"web", b"shop", *ZONE)
ASKED_TEXT = "web.shop.cluster.local."
AT = 12 + len(encode_name(labels_of("web.shop.cluster.local."))) + 4
ZONE_AT = 12 + 4 + 5


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        (".", b"\x00"),
        ("", b"\x00"),
        ("a.", b"\x01a\x00"),
        ("a", b"\x01a\x00"),
        ("Web.Shop.", b"\x03Web\x04Shop\x00"),
        ("\xff.", b"\x01\xff\x00"),
        (f"{'a' * 63}.", b"\x3f" + b"a" * 63 + b"\x00"),
        (".".join(["a" * 63] * 3 + ["b" * 61]), (b"\x3f" + b"a" * 63) * 3 + b"\x3d" + b"b" * 61 + b"\x00"),
    ],
)
def test_names(name: str, wire: bytes) -> None:
    assert encode_name(labels_of(name)) == wire
    labels, end = read_name(b"junk" + wire + b"junk", 4)
    assert (".".join(label.decode("latin-1") for label in labels), end) == (name.rstrip("."), 4 + len(wire))
    assert skip_name(wire, 0) == len(wire)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a" * 64, "a label has 1 to 63 bytes, this one 64"),
        ("a..b", "a label has 1 to 63 bytes, this one 0"),
        (".a", "a label has 1 to 63 bytes, this one 0"),
        (".".join(["a" * 63] * 3 + ["b" * 62]), "a name has at most 255 bytes, this one 256"),
    ],
)
def test_names_that_cannot_be_written(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        encode_name(labels_of(name))


def test_letters_beyond_a_byte_cannot_be_written() -> None:
    with pytest.raises(UnicodeEncodeError):
        labels_of("\u0100")


def test_a_character_string_ends_within_its_rdata() -> None:
    assert character_strings(b"\x02ab\x00") == (b"ab", b"")
    with pytest.raises(ValueError, match="runs out"):
        character_strings(b"\x00\x03ab")


@pytest.mark.parametrize(
    "wire", [b"", b"\x01", b"\x01a", b"\xc0\x00", b"\x40" + b"a" * 64 + b"\x00", b"\x80a\x00", b"\x3f" + b"a" * 62]
)
def test_names_that_cannot_be_read(wire: bytes) -> None:
    with pytest.raises(ValueError, match=r"the packet|compressed"):
        read_name(wire, 0)


@pytest.mark.parametrize(
    ("wire", "end"), [(b"\x00", 1), (b"\xc0\x0c", 2), (b"\x01a\xff\xff", 4), (b"\x01a\x02bc\x00x", 6)]
)
def test_names_are_skipped(wire: bytes, end: int) -> None:
    assert skip_name(wire, 0) == end


@pytest.mark.parametrize("wire", [b"", b"\x01", b"\x01a", b"\xc0", b"\x01a\xc0", b"\x40a\x00", b"\x80\x00"])
def test_names_that_cannot_be_skipped(wire: bytes) -> None:
    with pytest.raises(ValueError, match="runs out of the packet"):
        skip_name(wire, 0)


def section(*rrsets: RRset) -> bytes:
    return b"".join(encode_section(rrsets, Names(ASKED, ASKED_TEXT, ZONE), AT))


def head(owner: bytes, rtype: int, rdata: bytes) -> bytes:
    return owner + pack("!HHIH", rtype, 1, 5, len(rdata)) + rdata


SELF = b"\xc0\x0c"
IN_ZONE = pack("!H", 0xC000 | ZONE_AT)
SHOP = "shop.cluster.local."


@pytest.mark.parametrize(
    ("rrsets", "wire"),
    [
        pytest.param(
            [RRset(f"web.{SHOP}", A, 5, (b"\x0a\0\0\1", b"\x0a\0\0\2"))],
            head(SELF, A, b"\x0a\0\0\1") + head(SELF, A, b"\x0a\0\0\2"),
            id="the question's own name",
        ),
        pytest.param(
            [RRset("other.cluster.local.", A, 5, (b"\x0a\0\0\1",))],
            head(b"\x05other" + IN_ZONE, A, b"\x0a\0\0\1"),
            id="another name of the zone",
        ),
        pytest.param(
            [RRset("example.org.", A, 5, (b"\x0a\0\0\1",))],
            head(b"\x07example\x03org\x00", A, b"\x0a\0\0\1"),
            id="another name",
        ),
        pytest.param(
            [RRset(f"web.{SHOP}", CNAME, 5, (f"db.{SHOP}",)), RRset(f"db.{SHOP}", A, 5, (b"\x0a\0\0\1",))],
            head(SELF, CNAME, b"\x02db\x04shop" + IN_ZONE) + head(pack("!H", 0xC000 | AT + 12), A, b"\x0a\0\0\1"),
            id="the owner is where the CNAME wrote it",
        ),
        pytest.param(
            [RRset(f"web.{SHOP}", SRV, 5, (Srv(0, 50, 80, f"web.{SHOP}"),))],
            head(SELF, SRV, pack("!HHH", 0, 50, 80) + encode_name(labels_of(f"web.{SHOP}"))),
            id="SRV targets are whole (RFC 2782)",
        ),
        pytest.param(
            [RRset(f"web.{SHOP}", DNAME, 5, (f"web.{SHOP}",))],
            head(SELF, DNAME, encode_name(labels_of(f"web.{SHOP}"))),
            id="DNAME targets are whole (RFC 6672 §2.5)",
        ),
        pytest.param(
            [RRset(f"web.{SHOP}", PTR, 5, ("a.example.", "b.example."))],
            head(SELF, PTR, b"\x01a\x07example\x00") + head(SELF, PTR, b"\x01b" + pack("!H", 0xC000 | AT + 14)),
            id="rdata leans on rdata",
        ),
        pytest.param(
            [RRset("cluster.local.", NS, 5, ("ns.dns.cluster.local.",))],
            head(IN_ZONE, NS, b"\x02ns\x03dns" + IN_ZONE),
            id="the zone",
        ),
        pytest.param(
            [RRset("cluster.local.", SOA, 5, (Soa("ns.cluster.local.", "host.cluster.local.", 1, 2, 3, 4, 5),))],
            head(IN_ZONE, SOA, b"\x02ns" + IN_ZONE + b"\x04host" + IN_ZONE + pack("!IIIII", 1, 2, 3, 4, 5)),
            id="SOA",
        ),
        pytest.param([RRset(f"web.{SHOP}", TXT, 5, (b"\x051.1.0",))], head(SELF, TXT, b"\x051.1.0"), id="TXT"),
        pytest.param(
            [RRset(".", NS, 5, ("ns.",))], head(b"\x00", NS, b"\x02ns\x00"), id="the root has no pointer"
        ),
        pytest.param(
            [RRset(f"web.{SHOP}", CNAME, 5, ("x" * 64, f"db.{SHOP}"))],
            head(SELF, CNAME, b"\x02db\x04shop" + IN_ZONE),
            id="what cannot be written is left out",
        ),
    ],
)  # fmt: skip
def test_sections(rrsets: list[RRset], wire: bytes) -> None:
    assert section(*rrsets) == wire


def test_nothing_points_beyond_what_a_pointer_can_say() -> None:
    names = Names()
    far = encode_section([RRset("far.example.", A, 5, (b"\0" * 4,) * 2)], names, MAX_OFFSET + 1)
    assert [record[:13] for record in far] == [b"\x03far\x07example\x00"] * 2
    assert names.offsets == {}
    near = encode_section([RRset("a.example.", A, 5, (b"\0" * 4,) * 2)], names, MAX_OFFSET)
    assert [len(record) for record in near] == [11 + 14, 2 + 14]


def test_names_of_a_message_of_64_kib_are_read_again() -> None:
    packet = query("big.example.", A)
    question = read(packet)
    owners = tuple(f"a{number}.other.test." for number in range(1500)) * 2
    response = Response(0, AA, tuple(RRset(owner, A, 5, (bytes(4),)) for owner in owners))
    wire = compile_answer(question, response, 1 << 16, ".").wire(packet)
    assert len(wire) > 1 << 15
    assert tuple(rrset.owner for rrset in decode(wire).answer) == owners


def test_the_question_of_the_root() -> None:
    assert Names((), ".").offsets == {}
    assert Names((b"a",), "a.").offsets == {(b"a",): 12}
    assert Names((b"b", b"a"), "b.a.", (b"a",)).offsets == {(b"a",): 14, (b"b", b"a"): 12}
    assert Names((b"b", b"a"), "b.a.", (b"x",)).offsets == {(b"b", b"a"): 12}


@pytest.mark.parametrize(
    ("edns", "extended", "wire"),
    [
        (Edns(4096, False, 0), 0, b"\x00" + pack("!HHBBHH", 41, 1232, 0, 0, 0, 0)),
        (Edns(512, True, 0), 1, b"\x00" + pack("!HHBBHH", 41, 1232, 1, 0, 0x8000, 0)),
    ],
)
def test_opt(edns: Edns, extended: int, wire: bytes) -> None:
    assert encode_opt(edns, extended) == wire


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        ("cluster.local.", "cluster.local."),
        ("cluster.local.", "x.cluster.local."),
        ("cluster.local.", "a.bc.def.cluster.local."),
        (".", "x."),
    ],
)
def test_the_soa_of_a_zone_points_at_the_zone_in_the_question_also_when_it_is_renewed(zone: str, name: str) -> None:
    packet = query(name, A)
    question = read(packet)
    below = f".{zone}" if zone != "." else zone
    first, second = (RRset(zone, SOA, 5, (Soa(f"ns{below}", f"host{below}", serial, 2, 3, 4, 5),)) for serial in (1, 2))
    soa = ZoneSoa(first)
    answer = compile_answer(question, Response(NXDOMAIN, AA, soa=soa), 512, ".")
    assert decode(answer.wire(packet)).authority == (first,)
    soa.renew(second)
    assert decode(answer.wire(packet)).authority == (second,)


def test_nothing_points_at_a_record_that_could_not_be_written() -> None:
    names = Names()
    broken = RRset("host.shop.", SRV, 5, (Srv(0, 0, 1, "a" * 64 + "."),))
    address = RRset("host.shop.", A, 5, (b"\x0a\x00\x00\x01",))
    assert encode_section([broken, address], names, 50)[0].startswith(encode_name(labels_of("host.shop.")))


def test_nothing_points_at_a_record_that_did_not_fit() -> None:
    packet = query("x.cluster.local.", A)
    question = read(packet)
    large = tuple(RRset("far.example.", TXT, 5, (b"\xc8" + b"t" * 200,)) for _ in range(3))
    glue = (RRset("ns.far.example.", A, 5, (b"\x0a\x00\x00\x01",)), RRset("other.test.", A, 5, (b"\x0a\x00\x00\x02",)))
    answer = (RRset("x.cluster.local.", A, 5, (bytes(4),)),)
    response = Response(0, AA, answer, (*large, *glue), glue, zone="cluster.local.")
    for limit_bytes in range(100, 700):
        wire = compile_answer(question, response, limit_bytes, ".").wire(packet)
        assert len(wire) <= limit_bytes
        decode(wire)


def test_no_more_is_written_than_fits() -> None:
    answers = [
        RRset("web.shop.cluster.local.", A, 5, tuple(bytes((10, 0, 0, number)) for number in range(100)))
        for _ in range(2)
    ]
    names = Names(ASKED, ASKED_TEXT, ZONE)
    whole = encode_section(answers, names, AT)
    for end in (AT, AT + 15, AT + 16, AT + 17, AT + 16 * 100, AT + 16 * 150):
        some = encode_section(answers, names, AT, end)
        assert some == whole[: (end - AT) // 16 + 1]
        assert sum(map(len, some)) > end - AT
    assert encode_section(answers, names, AT, AT + 16 * 200) == whole


def test_a_name_that_is_too_long_is_not_written_with_a_pointer_either() -> None:
    labels = (b"a" * 63, b"b" * 63, b"c" * 63, b"d" * 61)
    name = "".join(f"{label.decode()}." for label in labels)
    assert Names(labels, name).encode(name, 300) == b"\xc0\x0c"
    with pytest.raises(ValueError, match="at most 255 bytes"):
        Names(labels, name).encode(f"_udp.{name}", 300)
