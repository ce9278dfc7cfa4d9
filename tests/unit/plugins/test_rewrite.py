"""Rules of `rewrite`: names that match, answers changed back, and what the table may keep."""

from collections.abc import Awaitable, Callable

import pytest
from configured import configured
from dns_chain import Behind, FakeWorld, held, read, response_at_once
from harness import answered, server_of, texts

from kdns.answers.chain import Reply, Request, Sees
from kdns.answers.decode import from_wire
from kdns.answers.response import Message, Response, Reuse, ZoneSoa
from kdns.dns.message import query
from kdns.dns.query import AD, Edns, read_query
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import AAAA, AXFR, CNAME, NOERROR, NXDOMAIN, REFUSED, SERVFAIL, SOA, A
from kdns.dns.zonefile import parse_record
from kdns.values import evolve


def records(*lines: str, **parts: object) -> Callable[[Request], Reply]:
    """A directive that answers with these records; `{qname}` is the question's name."""
    return lambda request: Response(
        answer=tuple(parse_record(line.replace("{qname}", request.query.name)) for line in lines),
        reuse=Reuse(),
        **parts,  # type: ignore[arg-type] # fields of Response
    )


NAMES = [
    ("name prefix foo bar", "foobar.example.", "barbar.example."),
    ("name prefix foo. bar", "foobar.example.", "foobar.example."),
    ("name prefix foo bar.", "foo.example.", "bar.example."),
    ("name substring us-west eu-north", "a.us-west-1.example.", "a.eu-north-1.example."),
    ("name substring a bb", "a.a.example.", "bb.bb.exbbmple."),
    ("name suffix .example .example.net", "a.example.", "a.example.net."),
    ("name suffix ample org", "a.example.", "a.exorg."),
    ("name Exact A.Example B.Example", "a.example.", "b.example."),
    (r"name regex ^(x\.)?(.*)\.example\.$ {1}{2}.org", "a.example.", "a.org."),
    ("continue name a. b.\nrewrite name b. c.", "a.", "c."),
    ("name a. b.\nrewrite name b. c.", "a.", "b."),
    ("name b. c.\nrewrite name a. b.", "a.", "b."),
    ("continue {\nname a. b.\n}\nrewrite {\nname b. d.\n}", "a.", "d."),
    ("cname x. y.\nrewrite name a. b.", "a.", "a."),
]


@pytest.mark.parametrize(("rules", "name", "asked"), NAMES)
async def test_names_that_match_become_others(rules: str, name: str, asked: str) -> None:
    behind = Behind(records())
    await answered(server_of(f"rewrite {rules}", FakeWorld(), behind), name)
    assert behind.requests[0].query.name == asked
    assert behind.requests[0].query == read_query(behind.requests[0].query.packet)


async def test_a_name_that_cannot_be_is_servfail() -> None:
    behind = Behind(records())
    server = server_of(f"rewrite name suffix .example .{'a' * 64}.example", FakeWorld(), behind)
    assert ((await answered(server, "a.example.")).rcode, behind.requests) == (2, [])


LONG = f"{'a' * 63}.{'a' * 63}.{'a' * 63}.{'a' * 59}.y."
"""A name of 255 bytes."""

ANSWERS = [
    ("name a.x. b.y.", "a.x.", ["B.y. 5 IN SRV 0 0 1 c.b.Y."], ["a.x. 5 IN SRV 0 0 1 c.a.x."]),
    ("name a.x. b.y.", "a.x.", ["b.y. 5 IN CNAME bb.y."], ["a.x. 5 IN CNAME bb.y."]),
    ("name suffix .x. .y. answer auto", "a.x.", ["a.y. 5 IN MX 1 mail.y."], ["a.x. 5 IN MX 1 mail.x."]),
    (r"name prefix a b answer value ^b\.(.*)$ c.{1}", "a.x.", ["b.x. 5 IN CNAME b.z."], ["b.x. 5 IN CNAME c.z."]),
    ("name prefix a b answer auto", "a.x.", ['{qname} 5 IN TXT "b.x."'], ['a.x. 5 IN TXT "b.x."']),
    ("name a.x. b.x.", "a.x.", ["b.x. 5 IN HTTPS 1 c.b.x. alpn=h2"], ['a.x. 5 IN HTTPS 1 c.a.x. alpn="h2"']),
    ("name a.x. .", "a.x.", [". 5 IN NS b.", "b. 5 IN A 10.0.0.1"], ["a.x. 5 IN NS b.", "b. 5 IN A 10.0.0.1"]),
    ("name a.x. y.", "a.x.", [f"{LONG} 5 IN A 10.0.0.1"], [f"{LONG} 5 IN A 10.0.0.1"]),
    ("ttl suffix .x. 30-60", "a.x.", ["a.x. 5 IN A 10.0.0.1"], ["a.x. 30 IN A 10.0.0.1"]),
    ("ttl suffix .x. 30-60", "a.x.", ["a.x. 99 IN A 10.0.0.1"], ["a.x. 60 IN A 10.0.0.1"]),
]


@pytest.mark.parametrize(("rules", "name", "given", "expected"), ANSWERS)
async def test_answers_are_changed_back(rules: str, name: str, given: list[str], expected: list[str]) -> None:
    server = server_of(f"rewrite {rules}", FakeWorld(), Behind(records(*given, flags=AD)))
    got = await answered(server, name)
    assert texts(got.answer) == expected
    assert bool(got.flags & AD) is (given == expected or "ttl" in rules)


async def test_an_upstream_s_bytes_are_taken_apart_only_where_something_changes() -> None:
    def upstream(request: Request) -> Reply:
        packet = request.query.packet
        wire = packet[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + packet[12 : request.query.question_end]
        return Response(body=Message(wire + b"\xc0\x0c\0\1\0\1\0\0\0\x05\0\x04\x0a\0\0\1"), reuse=Reuse())

    server = server_of("rewrite name a.x. b.yy.", FakeWorld(), Behind(upstream))
    assert texts((await answered(server, "a.x.")).answer) == ["a.x. 5 IN A 10.0.0.1"]
    assert texts((await answered(server, "c.x.")).answer) == ["c.x. 5 IN A 10.0.0.1"]


async def test_the_soa_of_another_zone_is_written_out() -> None:
    soa = ZoneSoa(RRset("y.", 6, 5, (Soa("ns.y.", "m.y.", 1, 2, 3, 4, 5),)))
    behind = Behind(lambda _request: Response(NXDOMAIN, soa=soa, reuse=Reuse(), zone="y."))
    behind.sees = Sees.PACKET
    server = server_of("rewrite name suffix .x. .y.\nrewrite name a.y. b.y.", FakeWorld(), behind)
    for name, kept in (("a.x.", False), ("a.y.", True)):
        got = await answered(server, name)
        assert texts(got.authority) == ["y. 5 IN SOA ns.y. m.y. 1 2 3 4 5"]
        assert (held(server.table.partition("udp", 4), query(name, A, payload_bytes=4096)) is not None) is kept


async def test_a_lookup_that_waits_is_awaited_and_the_next_changes_follow() -> None:
    async def found(request: Request) -> Reply:
        return records(f"{request.query.name} 50 IN A 10.0.0.9")(request)

    async def waited(request: Request) -> Reply:
        return records("{qname} 5 IN CNAME b.old.", "b.old. 5 IN A 10.0.0.1")(request)

    setup = FakeWorld()
    setup.resolve = found  # type: ignore[method-assign] # stands in for the server
    behind: Callable[[Request], Awaitable[Reply]] = waited
    rules = "rewrite continue ttl suffix .x. 20\nrewrite continue cname suffix .old. .new.\n"
    server = server_of(rules, setup, Behind(behind))
    assert texts((await answered(server, "a.x.")).answer) == ["a.x. 20 IN CNAME b.new.", "b.new. 20 IN A 10.0.0.9"]


async def test_further_messages_of_a_transfer_are_changed_back_too() -> None:
    parts = [Response(answer=(parse_record(f"{name}.y. 5 IN A 10.0.0.1"),)) for name in ("a", "b", "c")]
    behind = Behind(lambda _request: evolve(parts[0], more_messages=parts[1:]))
    server = server_of(
        "rewrite continue name suffix .x. .y. answer auto\nrewrite ttl suffix .y. 9", FakeWorld(), behind
    )
    response = response_at_once(server, query("a.x.", AXFR), transport="tcp")
    messages = [from_wire(Response(body=Message(wire))) for wire in (response.wire, *(response.more_messages or ()))]
    assert [line for message in messages for line in texts(message.answer)] == [
        f"{name}.x. 9 IN A 10.0.0.1" for name in ("a", "b", "c")
    ]


@pytest.mark.parametrize(
    ("rcode", "qtype", "answer", "authority"),
    [
        (NOERROR, AAAA, ["a.x. 5 IN CNAME b.new."], ["new. 5 IN SOA ns.new. m.new. 1 2 3 4 5"]),
        (NXDOMAIN, AAAA, ["a.x. 5 IN CNAME b.new."], ["new. 5 IN SOA ns.new. m.new. 1 2 3 4 5"]),
        (SERVFAIL, AAAA, ["a.x. 5 IN CNAME b.old."], []),
        (NOERROR, CNAME, ["a.x. 5 IN CNAME b.new."], []),
    ],
)
async def test_a_cname_is_led_elsewhere_where_nothing_is_there(
    rcode: int, qtype: int, answer: list[str], authority: list[str]
) -> None:
    soa = RRset("new.", SOA, 5, (Soa("ns.new.", "m.new.", 1, 2, 3, 4, 5),))
    setup = FakeWorld()

    def resolve(request: Request) -> Reply:
        del request
        return Response(rcode, authority=(soa,), reuse=Reuse())

    setup.resolve = resolve  # type: ignore[method-assign] # stands in for the server
    server = server_of("rewrite cname suffix .old. .new.", setup, Behind(records("{qname} 5 IN CNAME b.old.")))
    got = await answered(server, "a.x.", qtype)
    assert (texts(got.answer), texts(got.authority)) == (answer, authority)
    assert got.rcode == (NXDOMAIN if rcode == NXDOMAIN else NOERROR)


async def test_targets_that_lead_to_each_other_end() -> None:
    behind = Behind(records("{qname} 5 IN CNAME a.far.", "a.far. 5 IN CNAME a.near."))
    setup = FakeWorld()
    rules = "rewrite continue cname suffix .far. .near.\nrewrite continue cname suffix .near. .far."
    got = await answered(server_of(rules, setup, behind), "a.x.")
    assert (got.rcode, len(behind.requests)) == (0, 11)


KEPT = [
    ("name a. b.", True),
    ("ttl a. 5", True),
    ("edns0 local set 65001 {qtype}", True),
    ("edns0 nsid set", True),
    ("edns0 local set 65001 {client_ip}", False),
    ("edns0 local replace 65001 {client_ip}", False),
    ("edns0 subnet set 24 56", False),
    ("edns0 local set 65001 {a/b}", False),
    ("edns0 local append 10 new", False),
    ("edns0 local unset 10", False),
]
"""10 is the cookie, which is no part of a key of the table."""


@pytest.mark.parametrize(("rule", "is_kept"), KEPT)
async def test_the_table_keeps_what_depends_on_the_packet_alone(rule: str, is_kept: bool) -> None:
    behind = Behind(records("{qname} 5 IN A 10.0.0.1"))
    behind.sees = Sees.PACKET
    server = server_of(f"rewrite {rule}", FakeWorld(), behind)
    await answered(server, "a.")
    assert len(server.table) == is_kept


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("edns0 local append 65001 new", ((65001, b"old"), (65001, b"new"))),
        ("edns0 local set 65001 new", ((65001, b"new"),)),
        ("edns0 local append 65001 {client_ip}", ((65001, b"old"),)),
        ("edns0 local append 65002 new", ((65001, b"old"), (65002, b"new"))),
    ],
)
async def test_options_that_the_client_sent_too(rule: str, options: tuple[tuple[int, bytes], ...]) -> None:
    behind = Behind(records("{qname} 5 IN A 10.0.0.1"))
    server = server_of(f"rewrite {rule}", FakeWorld(), behind)
    question = read(query("a.", A))
    packet = question.changed(edns=Edns(1232, do=False, version=0, options=((65001, b"old"),))).packet
    server.respond(packet, server.table.partition("udp", 4), ("192.0.2.1", 40000))
    (request,) = behind.requests
    assert request.query.edns is not None
    assert request.query.edns.options == options


@pytest.mark.parametrize(
    ("rule", "groups"),
    [
        ("name regex (.*)a $1b", ["`$1` is literal text; a group of the expression is `{1}`"]),
        ("name regex (.*)a ${1}b", ["`${1}` is literal text; a group of the expression is `{1}`"]),
        (r"name regex (.*)a \1b", ["`\\1` is literal text; a group of the expression is `{1}`"]),
        ("name regex (.*)a {1}b answer name (.*)b $1a", ["`$1` is literal text; a group of the expression is `{1}`"]),
        ("cname regex (.*)a $1b", ["`$1` is literal text; a group of the expression is `{1}`"]),
        ("name regex (.*)a {1}b answer auto", []),
        ("name $1 b", []),
        ("edns0 local set 65280 $1", []),
    ],
)
def test_groups_of_other_programs_are_warned_of(rule: str, groups: list[str]) -> None:
    (server,) = configured(f". {{\nrewrite {rule}\n}}")
    assert [warning.reason.removeprefix("rewrite: ") for warning in server.warnings()] == groups


NEW_NAMES = [
    ("name public.x. secret.x.", "public.x.", REFUSED),
    ("name secret.x. public.x.", "secret.x.", NOERROR),
    ("name public.x. other.x.", "secret.x.", REFUSED),
]


@pytest.mark.parametrize(("rule", "name", "rcode"), NEW_NAMES)
async def test_acl_and_cache_are_about_the_new_name(rule: str, name: str, rcode: int) -> None:
    """As in CoreDNS since 1.14.2: otherwise `rewrite` leads clients to names that they may not ask for."""
    behind = Behind(lambda request: Response(answer=(parse_record(f"{request.query.name} 60 IN A 10.0.0.1"),)))
    config = f"cache\nrewrite {rule}\nacl secret.x {{\nblock net 192.0.2.0/24\n}}"
    server = server_of(config, FakeWorld(), behind)
    assert (await answered(server, "secret.x.", client="198.51.100.1")).rcode == NOERROR
    assert (await answered(server, "public.x.", client="198.51.100.1")).rcode == NOERROR
    assert (await answered(server, name)).rcode == rcode
    assert len(behind.requests) == len({request.query.name for request in behind.requests})


CACHED = [
    ("rewrite ttl a.x. 30", ["a.x. 30 IN CNAME b.x.", "b.x. 30 IN A 10.0.0.1"]),
    ("rewrite ttl a.x. 250-", ["a.x. 250 IN CNAME b.x.", "b.x. 250 IN A 10.0.0.1"]),
    ("rewrite cname b.x. c.x.", ["a.x. 200 IN CNAME c.x.", "c.x. 200 IN A 10.0.0.1"]),
    ("rewrite name a.x. a.y.", ["a.x. 200 IN CNAME b.x.", "b.x. 200 IN A 10.0.0.1"]),
    ('template IN A z {\nanswer "a.z. 900 CNAME c.x."\n}', ["a.z. 900 IN CNAME c.x.", "c.x. 200 IN A 10.0.0.1"]),
    ("file zone z", ["a.z. 900 IN CNAME c.x.", "c.x. 200 IN A 10.0.0.1"]),
]


@pytest.mark.parametrize(("directive", "expected"), CACHED)
async def test_ttls_of_kept_records_count_down(directive: str, expected: list[str]) -> None:
    """Also where the answer is changed in front of the cache, or has records of its own before them."""

    def upstream(request: Request) -> Response:
        name = request.query.name
        lines = (
            [f"{name} 300 IN CNAME b.x.", "b.x. 300 IN A 10.0.0.1"] if name[0] == "a" else [f"{name} 300 A 10.0.0.1"]
        )
        return Response(answer=tuple(map(parse_record, lines)))

    setup = FakeWorld(files={"zone": "@ 900 SOA ns m 1 2 3 4 5\na 900 CNAME c.x.\n"})
    server = server_of(f"cache x y\n{directive}", setup, Behind(upstream))
    await setup.prepared()
    name = expected[0].partition(" ")[0]
    for clock_s in (0.0, 50.0, 100.0):
        setup.clock_s = clock_s
        got = await answered(server, name, now_s=clock_s)
    assert texts(got.answer) == expected


async def test_options_of_rules_are_part_of_what_the_cache_asks_and_keeps() -> None:
    behind = Behind(lambda request: Response(answer=(parse_record(f"{request.query.name} 60 IN A 10.0.0.1"),)))
    server = server_of("cache\nrewrite edns0 local set 65001 {client_ip}", FakeWorld(), behind)
    for client in ("192.0.2.1", "192.0.2.2") * 2:
        assert (await answered(server, "a.x.", client=client)).rcode == NOERROR
    options = [request.query.edns and request.query.edns.options for request in behind.requests]
    assert options == [((65001, bytes((192, 0, 2, number))),) for number in (1, 2)]
    assert len(server.table) == 0
