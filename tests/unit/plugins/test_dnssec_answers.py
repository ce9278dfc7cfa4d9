"""`dnssec`: which keys sign what, how long signatures are kept, and what an NSEC record says."""

from collections.abc import Callable

import pytest
from decoded_message import decode
from dns_chain import Behind, FakeWorld, response_to, server_of
from test_signing import PAIRS
from zone_text import record_texts

from kdns.answers.chain import Sees
from kdns.answers.response import Response, Reuse
from kdns.corefile.lexer import Token
from kdns.dns.message import query
from kdns.dns.query import AA
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import CNAME, DNSKEY, DS, NS, NSEC, NXDOMAIN, RRSIG, SOA, TXT, A
from kdns.dnsserver.blocks import Server
from kdns.errors import CorefileError
from kdns.plugins.changes.dnssec.keys import read_key
from kdns.plugins.changes.dnssec.plugin import HOUR_S, Dnssec, DnssecConfig, build
from kdns.values import evolve

DAY_S = 24 * HOUR_S
APEX = RRset("a.", SOA, 60, (Soa("ns.a.", "h.a.", 1, 2, 3, 4, 5),))
FOUND = Response(0, AA, (RRset("b.a.", A, 60, (b"\x0a\x00\x00\x01",)),), reuse=Reuse())
MISSING = Response(NXDOMAIN, AA, authority=(APEX,), reuse=Reuse())
ALIAS = Response(NXDOMAIN, AA, (RRset("b.a.", CNAME, 60, ("c.a.",)),), (APEX,), reuse=Reuse())
REFERRAL = Response(0, 0, authority=(RRset("b.a.", NS, 60, ("ns.example.",)),), reuse=Reuse())
EMPTY = Response(0, AA, authority=(APEX,), reuse=Reuse())


def behind(reply: Callable[[int], Response]) -> Behind:
    """Answers as `reply` says for the type of the question."""
    return Behind(lambda request: reply(request.query.qtype), Sees.PACKET)


def key_files(name: str, flags: int, algorithm: int) -> dict[str, str]:
    public, private = PAIRS[algorithm]
    return {f"{name}.key": f"a. IN DNSKEY {flags} 3 {algorithm} {public}\n", f"{name}.private": private}


def served(setup: FakeWorld, reply: Callable[[int], Response], *keys: tuple[int, int], capacity: int = 100) -> Server:
    made = [key_files("k", flags, algorithm) for flags, algorithm in keys]
    pairs = tuple(read_key(files["k.key"], files["k.private"]) for files in made)
    return server_of(Dnssec(("a.",), pairs, capacity, setup), behind(reply))


async def asked(server: Server, name: str, qtype: int, now_s: float = 0.0, *, do: bool = True) -> bytes:
    packet = bytearray(query(name, qtype, payload_bytes=4096))
    packet[-4] |= 0x80 if do else 0
    outcome = server.respond(bytes(packet), server.table.partition("tcp", 4), received_s=now_s)
    return (await response_to(outcome)).wire


def covered(wire: bytes) -> list[tuple[int, int]]:
    """The type and algorithm of each signature."""
    decoded = decode(wire)
    signatures = [rrset.rdata[0] for rrset in (*decoded.answer, *decoded.authority) if rrset.rtype == RRSIG]
    return [(int.from_bytes(rdata[:2], "big"), rdata[2]) for rdata in signatures if isinstance(rdata, bytes)]


@pytest.mark.parametrize(
    ("keys", "of_keys", "of_records"),
    [([(257, 13)], [13], [13]), ([(256, 13), (256, 15)], [13, 15], [13, 15]), ([(257, 13), (256, 15)], [13], [15])],
)
async def test_which_keys_sign(keys: list[tuple[int, int]], of_keys: list[int], of_records: list[int]) -> None:
    server = served(FakeWorld(), lambda _qtype: FOUND, *keys)
    dnskeys = await asked(server, "a.", DNSKEY)
    assert covered(dnskeys) == [(DNSKEY, number) for number in of_keys]
    assert sum(rrset.rtype == DNSKEY for rrset in decode(dnskeys).answer) == len(keys)
    assert covered(await asked(server, "b.a.", A)) == [(A, number) for number in of_records]
    assert covered(await asked(server, "b.a.", A, do=False)) == []
    assert covered(await asked(server, "b.c.", A)) == []


async def test_signatures_are_kept_and_made_anew_in_time() -> None:
    setup = FakeWorld()
    server = served(setup, lambda _qtype: FOUND, (257, 13))
    misses = setup.counted["coredns_dnssec_cache_misses"].tally("dns://:53")
    hits = setup.counted["coredns_dnssec_cache_hits"].tally("dns://:53")
    seen = []
    for day in (0, 1, 3, 5, 6):
        setup.clock_s = day * DAY_S
        wire = await asked(server, "b.a.", A, setup.clock_s)
        seen.append((misses.count, hits.count, len(server.table)))
        assert covered(wire) == [(A, 13)]
    assert seen == [(1, 0, 1), (1, 1, 1), (1, 2, 1), (2, 2, 1), (2, 3, 1)]
    assert list(setup.exposed["coredns_dnssec_cache_entries"]()) == [(("dns://:53", "signature"), 1.0)]


async def test_signatures_are_bounded() -> None:
    setup = FakeWorld()
    server = served(setup, lambda _qtype: EMPTY, (257, 13), capacity=2)
    for number in range(5):
        await asked(server, f"{number}.a.", TXT)
    assert list(setup.exposed["coredns_dnssec_cache_entries"]()) == [(("dns://:53", "signature"), 2.0)]


@pytest.mark.parametrize(
    ("reply", "name", "qtype", "nsec", "signatures"),
    [
        pytest.param(MISSING, "b.a.", TXT, r"b.a. \000.b.a. A PTR HINFO MX RP", 2, id="no such name"),
        pytest.param(EMPTY, "a.", TXT, r"a. \000.a. A NS SOA PTR HINFO MX RP", 2, id="the zone's own name"),
        pytest.param(ALIAS, "b.a.", A, r"c.a. \000.c.a. PTR HINFO MX TXT", 3, id="a CNAME to nothing"),
        pytest.param(REFERRAL, "x.b.a.", A, r"b.a. b\000.a. NS RRSIG NSEC", 1, id="an unsigned child"),
        pytest.param(EMPTY, "b.a.", DS, r"b.a. \000.b.a. A PTR HINFO MX TXT", 2, id="DS of what is no child"),
    ],
)
async def test_denials(reply: Response, name: str, qtype: int, nsec: str, signatures: int) -> None:
    wire = await asked(served(FakeWorld(), lambda _qtype: reply, (257, 13)), name, qtype)
    decoded = decode(wire)
    (denial,) = [rrset for rrset in decoded.authority if rrset.rtype == NSEC]
    owner, _, _, _, rdata = record_texts(denial)[0].split(None, 4)
    assert f"{owner} {rdata}".startswith(nsec)
    assert decoded.rcode == "NOERROR"
    assert len(covered(wire)) == signatures


OUTSIDE = (RRset("b.a.", CNAME, 60, ("b.example.",)),)
OTHER_APEX = RRset("example.", SOA, 60, APEX.rdata)
TO_CHILD = (RRset("b.a.", CNAME, 60, ("x.c.a.",)),)
CHILD = (RRset("c.a.", NS, 60, ("ns.c.a.",)),)
CHILD_DS = (*CHILD, RRset("c.a.", DS, 60, (b"\x00\x01\x0d\x02" + bytes(32),)))
GLUE = (RRset("ns.c.a.", A, 60, (b"\x0a\x00\x00\x02",)),)


@pytest.mark.parametrize(
    ("reply", "types"),
    [
        pytest.param(Response(0, AA, OUTSIDE, (OTHER_APEX,)), [CNAME], id="NODATA in a zone of others"),
        pytest.param(Response(NXDOMAIN, AA, OUTSIDE, (OTHER_APEX,)), [CNAME], id="NXDOMAIN in a zone of others"),
        pytest.param(Response(0, AA, TO_CHILD, CHILD, GLUE), [CNAME, NSEC], id="an unsigned child"),
        pytest.param(Response(0, AA, TO_CHILD, CHILD_DS, GLUE), [CNAME, DS], id="a signed child"),
    ],
)
async def test_what_is_signed_behind_a_cname(reply: Response, types: list[int]) -> None:
    """The CNAME always is; NS records of a delegation and glue are not (RFC 4035 §2.2)."""
    wire = await asked(served(FakeWorld(), lambda _qtype: reply, (257, 13)), "b.a.", A)
    assert [rtype for rtype, _ in covered(wire)] == types
    assert decode(wire).rcode == ("NXDOMAIN" if reply.rcode else "NOERROR")
    assert [rrset.rtype for rrset in decode(wire).additional if rrset.rtype == RRSIG] == []


async def test_what_is_signed_already_is_not_signed_again() -> None:
    signed = RRset("b.a.", RRSIG, 60, (A.to_bytes(2, "big") + bytes(20),))
    reply = evolve(FOUND, answer=(*FOUND.answer, signed))
    wire = await asked(served(FakeWorld(), lambda _qtype: reply, (257, 13)), "b.a.", A)
    assert covered(wire) == [(A, 0)]


@pytest.mark.parametrize("name", ["b.a.", "a."])
@pytest.mark.parametrize("other", ["A", "PTR", "MX", "NAPTR", "SVCB", "HTTPS", "CAA", "TLSA", "URI"])
async def test_the_denial_of_one_type_denies_no_other(name: str, other: str) -> None:
    """Resolvers answer from NSEC records that they got for another question (RFC 8198)."""
    decoded = decode(await asked(served(FakeWorld(), lambda _qtype: EMPTY, (257, 13)), name, TXT))
    (denial,) = [rrset for rrset in decoded.authority if rrset.rtype == NSEC]
    types = record_texts(denial)[0].split()[5:]
    assert other in types
    assert not {"TXT", "CNAME", "DNAME", "DS"} & set(types)


async def test_ds_of_an_unsigned_child() -> None:
    server = served(FakeWorld(), lambda qtype: REFERRAL if qtype == NS else EMPTY, (257, 13))
    (denial,) = [rrset for rrset in decode(await asked(server, "b.a.", DS)).authority if rrset.rtype == NSEC]
    assert record_texts(denial)[0].endswith(r"\000.b.a. NS RRSIG NSEC")


@pytest.mark.parametrize(
    ("zone", "files", "reason"),
    [
        ("b.", key_files("k", 257, 13), "the key's zone a. is not one of b."),
        ("a.", key_files("k", 257, 13) | {"k.private": "Algorithm: 13\n"}, "cannot be read"),
    ],
)
def test_keys_that_cannot_be_used(zone: str, files: dict[str, str], reason: str) -> None:
    config = DnssecConfig((zone,), (Token("Corefile", 2, "k.private"),))
    with pytest.raises(CorefileError, match=reason):
        build(config, FakeWorld(files=files))


def test_without_keys_nothing_is_signed() -> None:
    setup = FakeWorld()
    build(DnssecConfig(("a.",)), setup)
    assert [line["directive"] for line in setup.lines] == ["dnssec"]


HASH = RRset("b.a.", DS, 60, (b"\x00\x01\x0d\x02" + bytes(32),))
CHILD_APEX = RRset("b.a.", SOA, 60, (Soa("ns.a.", "h.a.", 1, 2, 3, 4, 5),))


@pytest.mark.parametrize(
    ("reply", "signer", "types"),
    [
        (Response(0, AA, (HASH,), reuse=Reuse()), b"\x01a\x00", [DS]),
        (EMPTY, b"\x01a\x00", [SOA, NSEC]),
        (Response(0, AA, authority=(CHILD_APEX,), reuse=Reuse()), b"\x01b\x01a\x00", [SOA, NSEC]),
    ],
)
async def test_ds_at_an_apex_is_signed_by_the_side_that_answers(
    reply: Response, signer: bytes, types: list[int]
) -> None:
    """The parent's records by the parent, also where the child is one of the zones that are signed."""
    files = key_files("k", 257, 13)
    key = read_key(files["k.key"], files["k.private"])
    plugin = Dnssec(("b.a.", "a."), (key,), 100, FakeWorld())
    wire = await asked(server_of(plugin, behind(lambda _qtype: reply)), "b.a.", DS)
    assert sorted(rtype for rtype, _ in covered(wire)) == types
    decoded = decode(wire)
    signatures = [rrset.rdata[0] for rrset in (*decoded.answer, *decoded.authority) if rrset.rtype == RRSIG]
    assert all(isinstance(rdata, bytes) and rdata[18:].startswith(signer) for rdata in signatures)
