"""What zones answer, and what is no zone. Records are written as in zone files."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import pytest
from zone_text import record_texts

from kdns.dns.names import Labels, ZoneSet, labels_of
from kdns.dns.rdata import type_covered, wire_of
from kdns.dns.types import AAAA, ANY, CNAME, DS, MX, NS, NSEC, NSEC3, RRSIG, SOA, SRV, TXT, A, rcode_name, type_name
from kdns.dns.zone.difference import difference, is_newer
from kdns.dns.zone.lookup import Lookup, lookup
from kdns.dns.zone.zone import Zone, ZoneError, ZoneNode
from kdns.dns.zonefile import ZoneFileError, parse_record, parse_zone

HEAD = """$TTL 60
@ IN SOA ns admin 1 7200 3600 86400 30
@ IN NS ns
"""
ZONE = f"""{HEAD}ns IN A 192.0.2.1
www IN CNAME web
web IN A 192.0.2.2
out IN CNAME other.example.
one IN CNAME two
two IN CNAME one
self IN CNAME self
gone IN CNAME nothing
a.b.deep IN TXT "leaf"
*.wild IN MX 10 mail.wild
*.alias.wild IN CNAME web
exact.wild IN A 192.0.2.3
moved IN DNAME web.wild
loop IN DNAME loop
grows IN DNAME a.grows
child IN NS ns.child
child IN NS elsewhere.example.
ns.child IN A 192.0.2.53
sub.child IN TXT "below the cut"
to-child IN CNAME www.child
"""
# fmt: off
# question → rcode, AA, answer, authority's first type, additional
ANSWERS: dict[str, tuple[str, int, str, list[str], str]] = {
    "a name": ("web", A, "NOERROR", ["web A"], "NS"),
    "an alias": ("www", A, "NOERROR", ["www CNAME", "web A"], "NS"),
    "the alias itself": ("www", CNAME, "NOERROR", ["www CNAME"], "NS"),
    "an alias out of the zone": ("out", A, "NOERROR", ["out CNAME"], "NS"),
    "aliases in a circle": ("one", A, "NOERROR", ["one CNAME", "two CNAME"], "NS"),
    "an alias of itself": ("self", A, "NOERROR", ["self CNAME"], "NS"),
    "an alias of nothing": ("gone", A, "NXDOMAIN", ["gone CNAME"], "SOA"),
    "another type": ("web", TXT, "NOERROR", [], "SOA"),
    "an empty non-terminal": ("deep", A, "NOERROR", [], "SOA"),
    "one further down": ("b.deep", TXT, "NOERROR", [], "SOA"),
    "no name": ("nothing", A, "NXDOMAIN", [], "SOA"),
    "below a name": ("x.web", A, "NXDOMAIN", [], "SOA"),
    "the apex": ("@", SOA, "NOERROR", ["@ SOA"], "NS"),
    "the servers of the zone": ("@", NS, "NOERROR", ["@ NS"], ""),
    "a wildcard": ("x.y.wild", MX, "NOERROR", ["x.y.wild MX"], "NS"),
    "a wildcard without the type": ("x.wild", A, "NOERROR", [], "SOA"),
    "a name beside a wildcard": ("exact.wild", MX, "NOERROR", [], "SOA"),
    "below that name": ("x.exact.wild", MX, "NXDOMAIN", [], "SOA"),
    "an empty non-terminal hides the wildcard above": ("alias.wild", MX, "NOERROR", [], "SOA"),
    "a wildcard that is an alias": ("x.alias.wild", A, "NOERROR", ["x.alias.wild CNAME", "web A"], "NS"),
    "below a DNAME": ("x.moved", MX, "NOERROR", ["moved DNAME", "x.moved CNAME", "x.web.wild MX"], "NS"),
    "an alias made of a DNAME": ("x.moved", CNAME, "NOERROR", ["moved DNAME", "x.moved CNAME"], "NS"),
    "the DNAME's own name": ("moved", A, "NOERROR", [], "SOA"),
    "a name that gets too long": (".".join(["x" * 60] * 3 + ["y" * 52, "moved"]), A, "YXDOMAIN", ["moved DNAME"], "NS"),
    "a DNAME to itself": ("x.loop", A, "SERVFAIL", [], ""),
    "a DNAME below itself": ("x.grows", A, "NOERROR",
                             ["grows DNAME", *(f"x{'.a' * count}.grows CNAME" for count in range(12))], "NS"),
    "a delegation": ("child", A, "NOERROR", [], "NS"),
    "below a delegation": ("sub.child", TXT, "NOERROR", [], "NS"),
    "DS of a delegation is the parent's": ("child", DS, "NOERROR", [], "SOA"),
    "an alias into a delegation": ("to-child", A, "NOERROR", ["to-child CNAME"], "NS"),
    "ANY": ("@", ANY, "NOERROR", ["@ SOA", "@ NS"], ""),
    "signatures of an unsigned name": ("web", RRSIG, "NOERROR", [], "SOA"),
}
# fmt: on


def zone(text: str = ZONE, serial: int = 1) -> Zone:
    return Zone("example.org.", parse_zone(text.replace("admin 1 ", f"admin {serial} "), "example.org."))


def ask(held: Zone, name: str, qtype: int, *, do: bool = False) -> Lookup:
    labels = labels_of("example.org." if name == "@" else f"{name}.example.org.")
    return lookup(held, labels, qtype, do=do)


def short(owner: str) -> str:
    return owner.removesuffix("example.org.").removesuffix(".") or "@"


@pytest.mark.parametrize("about", ANSWERS)
def test_answers(about: str) -> None:
    name, qtype, rcode, answer, authority = ANSWERS[about]
    result = ask(zone(), name, qtype)
    assert rcode_name(result.rcode) == rcode
    assert [f"{short(rrset.owner)} {type_name(rrset.rtype)}" for rrset in result.answer] == answer
    assert (type_name(result.authority[0].rtype) if result.authority else "") == authority


def test_a_referral_has_glue_and_no_authority() -> None:
    result = ask(zone(), "x.child", A)
    assert not result.is_authoritative
    assert [line for rrset in result.additional for line in record_texts(rrset)] == [
        "ns.child.example.org. 60 IN A 192.0.2.53"
    ]
    assert ask(zone(), "to-child", A).is_authoritative


def test_the_addresses_of_targets_are_additional_and_those_of_ipv4_first() -> None:
    records = "srv IN SRV 0 0 1 six\nsrv IN SRV 0 0 2 web\nsix IN AAAA ::1\nsix IN A 192.0.2.6\n"
    result = ask(zone(ZONE + records), "srv", SRV)
    assert [f"{short(rrset.owner)} {type_name(rrset.rtype)}" for rrset in result.additional] == [
        "six A",
        "six AAAA",
        "web A",
    ]


def test_the_soa_of_a_negative_answer_lives_as_long_as_its_minimum() -> None:
    assert [rrset.ttl for rrset in ask(zone(), "nothing", A).authority] == [30]


# fmt: off
MISTAKES = {
    "no SOA": ("www IN A 192.0.2.1", "no SOA"),
    "two SOAs": (f"{HEAD}@ IN SOA ns admin 2 1 1 1 1", "more than one SOA"),
    "an alias with an address": (f"{HEAD}www IN CNAME a\nwww IN A 192.0.2.1", "CNAME and other records"),
    "two aliases": (f"{HEAD}www IN CNAME a\nwww IN CNAME b", "more than one CNAME"),
    "NSEC3 that costs too much": (f"{HEAD}{'0' * 32} IN NSEC3 1 0 101 - {'1' * 32} A", "100 iterations"),
}
FILE_MISTAKES = {
    "a type that is none": ("www IN NOSUCH 1", 1, "NOSUCH"),
    "an address that is none": (f"{HEAD}www IN A 192.0.2.256", 4, "."),
    "a directive that is none": (f"{HEAD}$FOO bar", 4, r"\$FOO"),
    "a class that is another one": (f"{HEAD}www CH A 192.0.2.1", 4, "class"),
    "a file that must not be": (f"{HEAD}$INCLUDE other", 4, "not allowed"),
    "an owner in quotes": (f'{HEAD}"quo" IN A 192.0.2.1', 4, 'expected a word without quotes, got "quo"'),
    "no data": (f"{HEAD}www IN A\n", 4, "expected a word, got the end of the line"),
    "no text": (f"{HEAD}www IN TXT\n", 4, "expected data of the record, got the end of the line"),
    "no number": (f"{HEAD}www IN MX mail\n", 4, "expected a whole number, got 'mail'"),
    "no address": (f"{HEAD}www IN A 192.0.2\n", 4, "expected other data of the record, got '192.0.2'"),
    "a word too many": (f"{HEAD}www IN A 192.0.2.1 x\n", 4, "expected the end of the line, got 'x'"),
    "another comment": (f"{HEAD}www IN A 192.0.2.1 # x\n", 4, "got '#'; a comment begins with ;"),
    "a parenthesis left open": (f"{HEAD}www IN TXT ( a", 4, "."),
}
# fmt: on


@pytest.mark.parametrize("about", MISTAKES)
def test_records_that_make_no_zone(about: str) -> None:
    text, reason = MISTAKES[about]
    with pytest.raises(ZoneError, match=reason):
        zone(text if text.startswith("$TTL") else f"$TTL 60\n{text}")


@pytest.mark.parametrize("about", FILE_MISTAKES)
def test_mistakes_in_files_have_their_line(about: str) -> None:
    text, line, reason = FILE_MISTAKES[about]
    with pytest.raises(ZoneFileError, match=reason) as caught:
        parse_zone(text, "example.org.", "db")
    assert (caught.value.path, caught.value.line) == ("db", line)


def test_every_mistake_of_a_file_is_told() -> None:
    """A line, a quote and a parenthesis with a mistake end where they end; what follows from a mistake is none."""
    text = (
        "@ IN SOA ns h 1 2 3 4\nwww IN A 192.0.2\n  IN NOSUCH x\n\nok IN A 192.0.2.1\n"
        't IN TXT "a\nu IN A ( 192.0.2.1\n c )\n'
        "$TTL x\n$INCLUDE none\n$INCLUDE sub\nv IN MX 5\nlast IN TXT ( a\nx IN NOSUCH\n"
    )

    def read(_path: str, name: str) -> tuple[str, str]:
        if name == "none":
            raise ValueError("not there")
        return name, "a IN A x\nb IN A y\n"

    with pytest.raises(ZoneFileError) as caught:
        parse_zone(text, "example.org.", "db", read)
    found = [(mistake.path, mistake.line) for mistake in (caught.value, *caught.value.others)]
    assert found == [("db", line) for line in (1, 2, 3, 6, 8, 9, 10)] + [("sub", 1), ("sub", 2), ("db", 12), ("db", 14)]


def test_mistakes_of_a_file_are_bounded() -> None:
    with pytest.raises(ZoneFileError) as caught:
        parse_zone("x IN NOSUCH y\n" * 1000, "example.org.", "db")
    assert len(caught.value.others) == 99


def test_included_files_leave_origin_and_owner_alone() -> None:
    files = {"sub": "$ORIGIN deeper\nwww IN A 192.0.2.7\n", "db": ""}
    text = f"{HEAD}a IN A 192.0.2.1\n$INCLUDE sub inner\n  IN A 192.0.2.2\n$GENERATE 1-3 h$ A 192.0.2.$\n"
    got = parse_zone(text, "example.org.", "db", lambda _, name: (name, files[name]))
    owners = [short(rrset.owner) for rrset in got[2:]]
    assert owners == ["a", "www.deeper.inner", "a", "h1", "h2", "h3"]


@pytest.mark.parametrize(
    ("included", "times", "fits"), [("$INCLUDE db", 1, False), ("", 1000, True), ("", 1001, False)]
)
def test_included_files_are_limited_in_depth_and_number(included: str, times: int, fits: bool) -> None:
    text = HEAD + "$INCLUDE db\n" * times
    with nullcontext() if fits else pytest.raises(ZoneFileError, match="files included 7 deep, or more than 1000"):
        parse_zone(text, "example.org.", "db", lambda _, name: (name, included))


def test_other_names_are_left_out() -> None:
    text = f"{HEAD}$ORIGIN .\nexample.com. IN A 192.0.2.1\nweb.example.org. IN A 192.0.2.2\n"
    assert set(zone(text).nodes) == {labels_of("example.org."), labels_of("web.example.org.")}


NSEC_CHAIN = {
    "@": "a NS SOA MX RRSIG NSEC DNSKEY",
    "a": "ai NS DS RRSIG NSEC",
    "ai": "b A HINFO AAAA RRSIG NSEC",
    "b": "ns1 NS RRSIG NSEC",
    "ns1": "ns2 A RRSIG NSEC",
    "ns2": "*.w A RRSIG NSEC",
    "*.w": "x.w MX RRSIG NSEC",
    "x.w": "x.y.w MX RRSIG NSEC",
    "x.y.w": "*.wild MX RRSIG NSEC",
    "*.wild": "xx CNAME RRSIG NSEC",
    "xx": "@ A HINFO AAAA RRSIG NSEC",
}
SIGNATURE = "5 2 3600 20040509183619 20040409183619 38519 example. AAAA"


@pytest.mark.parametrize(
    ("name", "qtype", "proofs"),
    [
        pytest.param("x.w", MX, [], id="B.1 an answer"),
        pytest.param("ml", A, ["b", "@"], id="B.2 no name"),
        pytest.param("ns1", MX, ["ns1"], id="B.3 no data"),
        pytest.param("mc.a", MX, [], id="B.4 a signed child"),
        pytest.param("mc.b", MX, ["b"], id="B.5 an unsigned child"),
        pytest.param("a.z.w", MX, ["x.y.w"], id="B.6 a wildcard: no closer name"),
        pytest.param("a.z.w", AAAA, ["x.y.w", "*.w"], id="B.7 a wildcard without the type"),
        pytest.param("@", DS, ["@"], id="B.8 no DS at an apex"),
        pytest.param("z.wild", MX, ["*.wild", "x.y.w"], id="a wildcard CNAME to a wildcard"),
    ],
)
def test_a_signed_zone_proves_with_nsec(name: str, qtype: int, proofs: list[str]) -> None:
    """The example of RFC 4035, appendix A, with *.wild: the proofs are those of its appendix B (§3.1.3)."""
    records = f"a IN NS ns1.a\na IN DS 57855 5 1 {'3F' * 20}\nb IN NS ns1.b\nai IN A 192.0.2.9\nns1 IN A 192.0.2.1\n"
    mail = f"x.w IN MX 1 xx\nx.y.w IN MX 1 xx\n*.w IN MX 1 ai\n*.w IN RRSIG MX {SIGNATURE}\nxx IN A 192.0.2.10\n"
    nsecs = "".join(
        f"{owner} IN NSEC {rest}\n{owner} IN RRSIG NSEC {SIGNATURE}\n" for owner, rest in NSEC_CHAIN.items()
    )
    held = Zone("example.", parse_zone(f"{HEAD}{records}{mail}*.wild IN CNAME a.z.w\n{nsecs}", "example."))
    labels = labels_of("example." if name == "@" else f"{name}.example.")
    result = lookup(held, labels, qtype, do=True)
    owners = [
        rrset.owner.removesuffix("example.").removesuffix(".") for rrset in result.authority if rrset.rtype == NSEC
    ]
    signatures = [rrset for rrset in result.authority if type_covered(rrset.rtype, rrset.rdata[0]) == NSEC]
    assert ([owner or "@" for owner in owners], len(signatures)) == (proofs, len(proofs))
    if name == "a.z.w" and qtype == MX:  # the signature is the wildcard's, which has two labels (RFC 4034 §3.1.3)
        assert [wire_of(rrset.rdata[0])[3] for rrset in result.answer if rrset.rtype == RRSIG] == [2]
    assert all(rrset.rtype not in {NSEC, RRSIG} for rrset in lookup(held, labels, qtype).authority)


def test_a_zone_that_opts_out_proves_with_nsec3() -> None:
    """The example of RFC 5155, appendix A: the proofs are those of its appendix B."""
    hashes = {
        "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom": "2t7b4g4vsa5smi47k61mv5bv1a22bojr MX DNSKEY NS SOA NSEC3PARAM RRSIG",
        "2t7b4g4vsa5smi47k61mv5bv1a22bojr": "2vptu5timamqttgl4luu9kg21e0aor3s A RRSIG",
        "35mthgpgcu1qg68fab165klnsnk3dpvl": "b4um86eghhds6nea196smvmlo4ors995 NS DS RRSIG",
        "b4um86eghhds6nea196smvmlo4ors995": "gjeqe526plbf1g8mklp59enfd789njgi MX RRSIG",
        "gjeqe526plbf1g8mklp59enfd789njgi": "ji6neoaepv8b5o6k4ev33abha8ht9fgc HINFO A AAAA RRSIG",
        "k8udemvp1j2f7eg6jebps17vp3n8i58h": "kohar7mbb8dc2ce8a9qvl8hon4k53uhi",
        "q04jkcevqvmu85r014c7dkba38o0ji5r": "r53bq7cc2uvmubfu5ocmm6pers9tk9en A RRSIG",
    }
    chain = "".join(f"{owner} IN NSEC3 1 1 12 aabbccdd {rest}\n" for owner, rest in hashes.items())
    text = f"{HEAD}a IN NS ns1.a\na IN DS 58470 5 1 {'3F' * 20}\nx.w IN MX 1 xx\n*.w IN MX 1 ai\n"
    held = Zone("example.", parse_zone(text + chain, "example."))
    assert held.nsec3
    assert held.nsec3.hash(labels_of("example.")) == b"0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"

    def proofs(name: str, qtype: int) -> list[str]:
        result = lookup(held, labels_of(name), qtype, do=True)
        return [rrset.owner.split(".")[0] for rrset in result.authority if rrset.rtype == NSEC3]

    closest, next_closer, wildcard = (list(hashes)[place] for place in (3, 0, 2))
    assert proofs("a.c.x.w.example.", A) == [closest, next_closer, wildcard]
    assert lookup(held, labels_of(f"{closest}.example."), NSEC3).is_bare


def test_differences_lead_from_one_version_to_the_next() -> None:
    old = zone(f"{HEAD}a IN A 192.0.2.1\na IN A 192.0.2.2\nb IN TXT gone\nd IN TXT same\n")
    new = zone(f"{HEAD}a IN A 192.0.2.2\na IN A 192.0.2.3\nc IN TXT new\nd 90 IN TXT same\n", serial=2)
    step = difference(old, new)
    removed, added = (
        sorted(line for rrset in part for line in record_texts(rrset)) for part in (step.removed, step.added)
    )
    assert removed == [
        "a.example.org. 60 IN A 192.0.2.1",
        'b.example.org. 60 IN TXT "gone"',
        'd.example.org. 60 IN TXT "same"',
    ]
    assert added == [
        "a.example.org. 60 IN A 192.0.2.3",
        'c.example.org. 60 IN TXT "new"',
        'd.example.org. 90 IN TXT "same"',
    ]
    assert [rrset.rtype for rrset in step.records()].count(SOA) == 2


@pytest.mark.parametrize(
    ("serial", "than", "newer"),
    [(2, 1, True), (1, 2, False), (1, 1, False), (0, 0xFFFFFFFF, True), (1 << 31, 0, False)],
)
def test_serials_go_round(serial: int, than: int, *, newer: bool) -> None:
    assert is_newer(serial, than) is newer


def test_the_records_of_a_zone_begin_without_a_look_at_all_names() -> None:
    """The nodes are taken one by one: a transfer of a large zone begins at once."""
    taken: list[ZoneNode] = []

    class Nodes(dict[Labels, ZoneNode]):
        def values(self) -> Iterator[ZoneNode]:  # type: ignore[override]
            for node in super().values():
                taken.append(node)
                yield node

    zone = Zone("example.org.", parse_zone(ZONE, "example.org."))
    zone.nodes = Nodes(zone.nodes)
    records = zone.records()
    assert (next(records).owner, len(taken)) == ("example.org.", 1)
    assert len([*records]) > len(taken) // 2
    assert len(taken) == len(zone.nodes)


def test_a_long_text_of_many_names_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 KiB of a template took 47 ms at each query."""
    text = " ".join(["b" * 250] * 255)
    first = parse_record(f"one.example. 60 IN TXT {text}")
    monkeypatch.setattr("dns.rdata.from_text", None)
    assert parse_record(f"two.example. 60 IN TXT {text}") == replace(first, owner="two.example.")


ZONES = ZoneSet(["org.", "a.org.", "x.y.a.org.", "net."])


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("a.org.", "a.org."),
        ("b.a.org.", "a.org."),
        ("y.a.org.", "a.org."),
        ("z.x.y.a.org.", "x.y.a.org."),
        ("aa.org.", "org."),
        ("net.", "net."),
        ("com.", None),
        ("xnet.", None),
        (".", None),
    ],
)
def test_the_closest_zone(name: str, closest: str | None) -> None:
    labels = labels_of(name)
    assert ZONES.closest(labels) == (None if closest is None else labels_of(closest))
    assert (labels in ZONES) is (closest is not None)


def test_every_name_is_below_the_root() -> None:
    assert all(labels_of(name) in ZoneSet(["."]) for name in (".", "org.", "a.org."))
    assert labels_of("org.") not in ZoneSet([])


def test_zones_keep_their_order_and_stand_once() -> None:
    assert [*ZoneSet(["b.", "a.", "b."])] == [(b"b",), (b"a",)]
    assert len(ZoneSet(["b.", "a.", "b."])) == 2
