"""`template`: Go's templates, answers, metrics, and what the table may keep."""

import pytest
from configured import configured
from decoded_message import decode
from dns_chain import Behind, FakeWorld, held, response_at_once, wire
from harness import answered, server_of, texts
from hypothesis import given
from hypothesis import strategies as st

from kdns.answers.chain import Reply, Request, Sees
from kdns.answers.response import Response, Reuse
from kdns.dns.message import query
from kdns.dns.query import HEADER_BYTES, TC
from kdns.dns.types import CNAME, NXDOMAIN, TXT, A
from kdns.dns.zonefile import parse_record
from kdns.plugins.sources.template.gofunctions import Map, Struct
from kdns.plugins.sources.template.gotemplate import Template, TemplateSyntaxError
from kdns.serverblocks.expressions.values import EvaluationError

IP = "match ^ip-(?P<a>[0-9]+)-(?P<b>[0-9]+)[.]$\n"
DOUBTS = [
    ("IN A", "answer", "{{ .Nmae }} IN A 10.0.0.1", "unknown field `.Nmae`; did you mean `.Name`?"),
    ("IN A", "answer", "{{ .Question.Naem }}", "unknown field `.Question.Naem`; did you mean `.Question.Name`?"),
    ("IN A", "answer", "{{ with .Name }}{{ $.Nmae }}{{ end }}", "unknown field `.Nmae`; did you mean `.Name`?"),
    ("IN A", "answer", "{{ .Name.Length }}", "unknown field `.Name.Length`"),
    ("IN A", IP + "answer", "{{ .Name }} IN A 10.0.0.{{ .Group.c }}", "unknown field `.Group.c`"),
    ("IN A", "var x 1\nanswer", "{{ .Name }} IN A 10.0.0.{{ .Var.y }}", "unknown field `.Var.y`"),
    (
        "IN A",
        IP + "answer",
        "{{ .Name }} IN AA 10.0.0.{{ .Group.a }}",
        "is not a record: DNS resource record type is unknown.",
    ),
    ("IN A", IP + "answer", "{{ .Name }} 60 IN A 10.0.0.256", "is not a record: Text input is malformed."),
    ("IN A", "expr true\nadditional", "{{ .Name }} 60 IN", "is not a record: its type is missing"),
    ("IN A", "answer", "{{ if .Name }}nothing{{ end }}", "is not a record: its type is missing"),
    ("IN A", "answer", "{{ index .Match 1 }} IN A 10.0.0.1", "index out of range: 1"),
    ("ANY ANY", "authority", "{{ .Zone }} IN SOA ns. h. (1 2 3 4)", "expecting an identifier"),
    ("IN A", IP + "answer", "{{ .Name }} IN A 10.0.{{ .Group.a }}.{{ .Group.2 }}", ""),
    ("IN A", IP + "answer", "{{ .Name }} IN A {{ .Group.a }}", ""),
    ("IN A", IP + "answer", "{{ if eq .Name `ip-1-2.` }}{{ .Name }} IN A 10.0.0.1{{ else }}none{{ end }}", ""),
    ("IN A", "answer", "{{ with .Message }}{{ .Id }}{{ end }}", ""),
    ("ANY ANY", "answer", "{{ .Name }} {{ .Type }} {{ .Remote }}", ""),
    ("IN A", "answer", "{{ if eq .Zone `.` }}{{ end }}", ""),
]


@pytest.mark.parametrize(("head", "options", "template", "reason"), DOUBTS)
def test_templates_that_always_fail_are_doubted(head: str, options: str, template: str, reason: str) -> None:
    (server,) = configured(f'. {{\ntemplate {head} {{\n{options} "{template}"\n}}\n}}\n')
    warnings = list(server.warnings())
    assert len(warnings) == bool(reason)
    for warning in warnings:
        assert (warning.token, reason in warning.reason) == (template, True), warning


DATA = Struct(
    Name="a.example.",
    Group=Map({"n": "5f", "0": "x"}),
    Match=("x", "y"),
    Var=Map({"number": 12, "flag": True, "none": None, "half": 0.5}, None),
    Meta=lambda label: f"<{label}>",
    Question=Struct(Name="A.example.", Qtype=1),
)
TEMPLATES = [
    ("{{ .Name }}|{{.Question.Qtype}}|{{ .Question.Name }}", "a.example.|1|A.example."),
    ('{{ parseInt .Group.n 16 8 }} {{ parseInt "0x1f" 0 64 }} {{ parseInt "017" 0 0 }}', "95 31 15"),
    ('{{ index .Match 1 }}{{ index .Group "n" }}{{ index .Group "m" }}', "y5f"),
    ("{{ .Group.none }}|{{ .Var.none }}|{{ .Var.other }}", "|<no value>|<no value>"),
    ("{{ .Var.number }} {{ .Var.flag }} {{ .Var.half }}", "12 true 0.5"),
    ('{{ .Meta "a/b" }}{{ "c" | .Meta }}', "<a/b><c>"),
    ('{{ if eq .Name "b" "a.example." }}1{{ else }}2{{ end }}', "1"),
    ("{{ if and .Var.flag (gt .Var.number 20) }}1{{ else if or .Var.none .Name }}2{{ else }}3{{ end }}", "2"),
    ("{{ if not .Group.m }}1{{ end }}{{ if ne 1 2 }}2{{ end }}", "12"),
    ('{{ if le 1 1 }}3{{ end }}{{ if ge "a" "b" }}4{{ end }}', "3"),
    ("{{ with .Group.n }}{{ . }}{{ $.Name }}{{ else }}-{{ end }}", "5fa.example."),
    ("{{ with .Var.none }}1{{ else }}2{{ end }}", "2"),
    ("{{ with $n := .Var.number }}{{ $n }}{{ end }}", "12"),
    ("{{ range $i, $m := .Match }}{{ $i }}={{ $m }},{{ end }}{{ range .Group }}{{ . }};{{ end }}", "0=x,1=y,x;5f;"),
    ("{{ range $i := 3 }}{{ if eq $i 1 }}{{ continue }}{{ end }}{{ $i }}{{ end }}", "02"),
    ("{{ range $i := 3 }}{{ if eq $i 2 }}{{ break }}{{ end }}{{ $i }}{{ end }}", "01"),
    ("{{ range .Var.none }}1{{ else }}none{{ end }}", "none"),
    ("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ $x = 3 }}{{ $x }}{{ end }}{{ $x }}", "31"),
    ('{{ .Name | printf "%-12s|%q" "z" }}', 'z           |"a.example."'),
    ('{{ printf "%03d %x %X %+d %5.1f" 7 255 "ab" 5 2.25 }}', "007 ff 6162 +5   2.2"),
    ('{{ printf "%T %T %T %T" .Name 1 true .Group }}', "string int bool map[string]string"),
    ('{{ printf "%v %t %c %s%%" .Var.flag true 65 "s" }}', "true true A s%"),
    ('{{ print 1 2 "a" 3 }}{{ println 1 "b" }}', "1 2a3" + "1 b\n"),
    ("{{ len .Name }}{{ len .Match }}{{ len .Var }}", "1024"),
    ("{{ slice .Name 2 5 }}{{ slice .Name 8 }}", "exae."),
    ("{{ 'a' }} {{ `raw\\n` }} {{ \"\\x41\\t\" }} {{ 0x10 }} {{ -1.5 }}", "97 raw\\n A\t 16 -1.5"),
    ("a {{- /* a comment */ -}} b {{- .Name }}", "aba.example."),
    ("{{ (index .Match 0) }}{{ (.Question).Name }}", "xA.example."),
]


@pytest.mark.parametrize(("source", "expected"), TEMPLATES)
def test_templates_are_go_s(source: str, expected: str) -> None:
    assert Template(source).run(DATA) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ .Nmae }}",
        "{{ .Name.Length }}",
        "{{ index .Match 2 }}",
        "{{ index .Match }}{{ . }}",
        "{{ parseInt }}",
        '{{ parseInt "gg" 16 8 }}',
        '{{ parseInt "256" 10 8 }}',
        "{{ .Name 1 }}",
        "{{ .Meta }}",
        "{{ .Question }}",
        '{{ eq 1 "1" }}',
        "{{ lt true false }}",
        "{{ len 1 }}",
        "{{ slice .Name 5 2 }}",
        '{{ printf "%d" "a" }}',
        '{{ printf "%d" }}',
        '{{ printf "%9999s" "a" }}',
        "{{ range .Name }}{{ end }}",
        "{{ range 9999 }}{{ range 9999 }}{{ end }}{{ end }}",
        "{{ range 900 }}" + "0123456789" * 9 + "{{ end }}",
    ],
)
def test_templates_that_fail(source: str) -> None:
    with pytest.raises(EvaluationError):
        Template(source).run(DATA)


@pytest.mark.parametrize(
    "source",
    [
        "{{",
        "{{ }}",
        "{{ if }}{{ end }}",
        "{{ if 1 }}",
        "{{ end }}",
        "{{ else }}",
        "{{ if 1 }}{{ else }}{{ else }}{{ end }}",
        "{{ range 1 }}{{ else if 1 }}{{ end }}",
        "{{ $x }}",
        "{{ $x = 1 }}",
        "{{ $ := 1 }}",
        "{{ ( 1 }}",
        "{{ 1 ) }}",
        "{{ break }}",
        '{{ define "x" }}{{ end }}',
        "{{ 1 2 | }}",
        "{{ ? }}",
        '{{ "\\q" }}',
        "{{ 08 }}",
        "{{ if 1 }}" * 30 + "{{ end }}" * 30,
        "{{ " + "(" * 30 + "1" + ")" * 30 + " }}",
    ],
)
def test_texts_that_are_no_templates(source: str) -> None:
    with pytest.raises(TemplateSyntaxError):
        Template(source)


PIECES = [
    *("{{", "}}", "-}}", " ", ".Name", "$x", ":=", "1", '"a"', "if", "else", "end", "range", "with"),
    *("(", ")", "|", "len", "eq", ".", "text", "/* c */", "break", ".Match"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=15))
def test_any_text_is_a_template_or_none(pieces: list[str]) -> None:
    try:
        Template(" ".join(pieces)).run(DATA)
    except (TemplateSyntaxError, EvaluationError):
        return


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("10-1-2-3.x.", ["10-1-2-3.x. 60 IN A 10.1.2.3"]),
        ("192-168-0-1.x.", ["192-168-0-1.x. 60 IN A 192.168.0.1"]),
        ("8-8-8-8.x.", None),
        ("10-1-2-999.x.", None),
    ],
)
async def test_an_expression_may_be_about_each_element_of_a_list(name: str, answer: list[str] | None) -> None:
    text = """template IN A x {
        match ^(?P<ip>[0-9]{1,3}(-[0-9]{1,3}){3})[.]x[.]$
        var ip replace(group('ip'), '-', '.')
        expr "any(['10.0.0.0/8', '192.168.0.0/16'], incidr(ip, #))"
        answer "{{ .Name }} 60 IN A {{ .Var.ip }}"
    }"""
    response = await answered(server_of(text, FakeWorld()), name)
    assert (response.rcode, texts(response.answer)) == (0 if answer else 2, answer or [])


@pytest.mark.parametrize(
    ("behind", "rcode", "answer", "truncated"),
    [
        (
            Response(answer=(parse_record("b. 9 IN A 10.0.0.1"),), flags=TC, reuse=Reuse()),
            0,
            ["b. 9 IN A 10.0.0.1"],
            True,
        ),
        (Response(NXDOMAIN, reuse=Reuse()), NXDOMAIN, [], False),
        (Response(2), 0, [], False),
        (None, 0, [], False),
    ],
)
async def test_the_target_of_a_cname_is_looked_up(
    behind: Reply, rcode: int, answer: list[str], truncated: bool
) -> None:
    async def resolved(request: Request) -> Reply:
        assert request.query.name == "b."
        return behind

    setup = FakeWorld()
    setup.resolve = resolved  # type: ignore[method-assign] # stands in for the server
    server = server_of('template IN ANY {\nanswer "{{ .Name }} 5 IN CNAME b."\n}', setup)
    got = await answered(server, "a.")
    assert (got.rcode, texts(got.answer)) == (rcode, ["a. 5 IN CNAME b.", *answer])
    assert bool(got.flags & TC) is truncated
    assert texts((await answered(server, "a.", CNAME)).answer) == ["a. 5 IN CNAME b."]


async def test_a_target_that_the_template_has_itself_is_not_looked_up_however_it_is_spelled() -> None:
    server = server_of('template IN ANY {\nanswer "{{ .Name }} 5 IN CNAME B." "b. 5 IN A 10.0.0.1"\n}', FakeWorld())
    assert texts((await answered(server, "a.")).answer) == ["a. 5 IN CNAME B.", "b. 5 IN A 10.0.0.1"]


async def test_templates_that_lead_to_each_other_end() -> None:
    setup = FakeWorld()
    config = 'template IN ANY {\nanswer "{{ .Name }} 5 IN CNAME a.{{ .Name }}" "x. 5 IN CNAME b.{{ .Name }}"\n}'
    got = await answered(server_of(config, setup), "a.")
    assert (got.rcode, len(got.answer)) == (0, 22)
    assert dict(setup.counted["coredns_template_matches"].samples()) == {("dns://:53", ".", "", "IN", "A"): 11.0}


async def test_matches_of_a_looked_up_target_count_too() -> None:
    setup = FakeWorld()
    config = 'template IN ANY a. {\nanswer "{{ .Name }} 5 IN CNAME b."\n}\n'
    config += 'template IN A b. {\nanswer "b. 5 IN A 10.0.0.1"\n}'
    server = server_of(config, setup)
    packet, partition = query("a.", A), server.table.partition("udp", 4)
    server.respond(packet, partition)
    cached = held(partition, packet)
    assert cached
    cached.wire(packet)
    partition.totals()
    matches = dict(setup.counted["coredns_template_matches"].samples())
    assert matches == {("dns://:53", zone, "", "IN", "A"): 2.0 for zone in ("a.", "b.")}


async def test_metrics_count_matches_and_failures_with_labels_that_clients_do_not_choose() -> None:
    setup = FakeWorld()
    config = 'template ANY ANY ok. {\nanswer "{{ .Name }} 5 IN TXT ok"\n}\n'
    config += 'template IN A {\nanswer "{{ index .Match 7 }}"\n}\ntemplate IN TXT {\nanswer "{{ .Name }}"\n}'
    server = server_of(config, setup)
    for name, qtype in (("a.ok.", 65280), ("a.ok.", 65281), ("a.", A), ("a.", TXT)):
        await answered(server, name, qtype)
    place = ("dns://:53",)
    assert {name: dict(counters.samples()) for name, counters in setup.counted.items()} == {
        "coredns_template_matches": {
            (*place, "ok.", "", "IN", "other"): 2.0,
            (*place, ".", "", "IN", "A"): 1.0,
            (*place, ".", "", "IN", "TXT"): 1.0,
        },
        "coredns_template_template_failures": {(*place, ".", "", "IN", "A", "answer", "{{ index .Match 7 }}"): 1.0},
        "coredns_template_rr_failures": {(*place, ".", "", "IN", "TXT", "answer", "{{ .Name }}"): 1.0},
    }


KEPT = [
    ('answer "{{ .Name }} 5 IN A 10.0.0.1"', True),
    ("expr name() == 'a.'\nanswer \"{{ .Name }} 5 IN A 10.0.0.1\"", True),
    ("rcode SERVFAIL", True),
    ('answer "{{ .Name }} 5 IN A {{ .Remote }}"', False),
    ('answer "{{ .Name }} 5 IN TXT {{ .Meta \\"a/b\\" }}x"', False),
    ('answer "{{ .Question.Name }} 5 IN A 10.0.0.1"', False),
    ('var ip client_ip()\nanswer "{{ .Name }} 5 IN A {{ .Var.ip }}"', False),
    ("expr incidr(client_ip(), '10.0.0.0/8')\nfallthrough", False),
    ("expr incidr(client_ip(), '10.0.0.0/8')", False),
    ("expr type() == 'AAAA'\nfallthrough", True),
]


@pytest.mark.parametrize(("options", "is_cached"), KEPT)
async def test_the_table_keeps_what_depends_on_the_packet_alone(options: str, is_cached: bool) -> None:
    behind = Behind(lambda _request: Response(NXDOMAIN, reuse=Reuse()))
    behind.sees = Sees.PACKET
    setup = FakeWorld()
    server = server_of(f"template IN A {{\n{options}\n}}", setup, behind)
    packet = query("a.", A)
    first = response_at_once(server, packet, ("192.0.2.1", 40000))
    cached = held(server.table.partition("udp", 4), packet)
    assert (cached is not None) is is_cached
    if cached:
        assert cached.wire(packet)[HEADER_BYTES:] == first.wire[HEADER_BYTES:]


@pytest.mark.parametrize("options", ["", "var ip client_ip()\n", "expr client_ip() == '192.0.2.1'\nfallthrough\n"])
async def test_cache_gives_no_client_the_answer_of_another(options: str) -> None:
    stanza = f'template IN A {{\n{options}answer "{{{{ .Name }}}} 60 IN A {{{{ .Remote }}}}"\n}}\ncache'
    setup = FakeWorld()
    server = server_of(stanza, setup, Behind(lambda _request: Response(NXDOMAIN)))
    addresses = []
    for host in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
        response = await wire(server, query("a.", A), (host, 40000))
        addresses.append([rrset.rdata for rrset in decode(response).answer])
    second = [] if "fallthrough" in options else [(b"\xc0\0\2\2",)]
    assert addresses == [[(b"\xc0\0\2\1",)], second, [(b"\xc0\0\2\1",)]]


def test_an_error_shows_the_beginning_of_a_text() -> None:
    """A template may give 64 KiB, and each query that it fails for is a line of the log."""
    with pytest.raises(ValueError, match="is not a record") as caught:
        parse_record("x" * 65536)
    assert len(str(caught.value)) < 500
