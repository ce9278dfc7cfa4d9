"""For random directives, questions and changes: the table changes no answer of `rewrite`, `view` and `template`."""

from chain_world import sent
from configured import configured
from dns_chain import Behind, FakeWorld, response_at_once, server_of_blocks
from harness import server_of, shown
from hypothesis import given
from hypothesis import strategies as st

from kdns.answers.chain import Reply, Request, Sees
from kdns.answers.response import Response, Reuse, ZoneSoa
from kdns.dns.message import query
from kdns.dns.names import is_below
from kdns.dns.query import AA
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import AAAA, CNAME, NOERROR, NXDOMAIN, A
from kdns.dnsserver.blocks import Server

NAMES = ("a.x.", "b.x.", "a.y.", "b.y.", "x.", "z.")

RULES = st.sampled_from(
    (
        "name a.x. b.y.", "name suffix .x. .y. answer auto", "name suffix .y. .x.",
        "name regex ^a(.*)$ b{1} answer auto",
        "name substring .x .y answer name ^(.*)y\\.$ {1}x", "ttl suffix y. 7", "rcode suffix x. NXDOMAIN NOERROR",
        "type AAAA A", "edns0 local set 65001 {client_ip}", "edns0 local set 65001 {qname}", "edns0 nsid set revert",
        "cname exact z. b.y.", "cname suffix .y. .x.",
    )
)  # fmt: skip
STANZAS = st.lists(st.tuples(st.sampled_from(("stop", "continue")), RULES), min_size=1, max_size=4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), st.sampled_from((A, AAAA)), st.sampled_from((0, 1232)), st.integers(1, 2)),
        st.tuples(st.just("change"), st.sampled_from(NAMES), st.integers(0, 2)),
    ),
    max_size=25,
)


class Zone:
    """A zone y. whose SOA counts changes, and other names: addresses, CNAMEs to z., or nothing.

    The options of a query come back, so that what rules put into it can be seen.
    """

    def __init__(self, setup: FakeWorld) -> None:
        self.setup = setup
        self.values: dict[str, int] = {}
        self.serial = 1
        self.soa = ZoneSoa(self.soa_rrset())

    def soa_rrset(self) -> RRset:
        return RRset("y.", 6, 5, (Soa("ns.y.", "m.y.", self.serial, 2, 3, 4, 5),))

    def change(self, name: str, value: int) -> None:
        self.values[name] = value
        self.serial += 1
        self.soa.renew(self.soa_rrset())
        self.setup.forget((name,))

    def reply(self, request: Request) -> Reply:
        name, edns = request.query.name, request.query.edns
        value, reuse = self.values.get(name, 0), Reuse((name,))
        options = edns.options if edns else ()
        if value == 1:
            return Response(NOERROR, AA, (RRset(name, CNAME, 5, ("z.",)),), reuse=reuse, options=options)
        if value and request.query.qtype == A:
            return Response(
                NOERROR, AA, (RRset(name, A, 5, (bytes((10, 0, 0, value)),)),), reuse=reuse, options=options
            )
        if is_below(request.query.labels, (b"y",)):
            return Response(NXDOMAIN, AA, soa=self.soa, reuse=reuse, zone="y.", options=options)
        return Response(NXDOMAIN, AA, reuse=reuse, options=options)


def kept_and_anew(server: Server, packet: bytes, client: tuple[str, int]) -> tuple[object, object]:
    """The response from the table if it has one, and that of the chain."""
    kept = sent(server, packet, FakeWorld(), client=client)
    return shown(kept), shown(response_at_once(server, packet, client, family=6).wire)


@given(STANZAS, STEPS)
def test_the_table_changes_no_rewritten_answer(stanzas: list[tuple[str, str]], steps: list[tuple[object, ...]]) -> None:
    setup = FakeWorld()
    zone = Zone(setup)
    config = "\n".join(f"rewrite {mode} {rule}" for mode, rule in stanzas)
    server = server_of(config, setup, Behind(zone.reply, Sees.PACKET))
    for step in steps:
        match step:
            case ("change", str(name), int(value)):
                zone.change(name, value)
            case (str(name), int(qtype), int(payload_bytes), int(client)):
                packet = query(name, qtype, payload_bytes=payload_bytes)
                kept, anew = kept_and_anew(server, packet, (f"192.0.2.{client}", 40000))
                assert kept == anew, (config, name, client)


CONDITIONS = (
    "type() == 'A'", "name() startsWith 'a.'", "incidr(client_ip(), '192.0.2.1/32')", "do()", "port() == '40000'",
    "name() matches '^[ab]' && client_ip() != '192.0.2.1'", "size() > 30", "false", "int(name()) == 1",
)  # fmt: skip
OPTIONS = (
    'answer "{{ .Name }} 5 IN TXT TEXT"', 'answer "{{ .Name }} 5 IN TXT TEXT {{ .Remote }}"', "rcode NXDOMAIN",
    "expr incidr(client_ip(), '192.0.2.2/32')\nfallthrough", "expr type() == 'AAAA'\nfallthrough",
    'answer "{{ .Name }} 5 IN CNAME b.y."', "match ^a\nfallthrough",
)  # fmt: skip
BLOCKS = st.lists(
    st.tuples(
        st.sampled_from(("x", "y.x", "y")),
        st.lists(st.sampled_from(CONDITIONS), max_size=2),
        st.lists(st.sampled_from(OPTIONS), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=4,
)
QUESTIONS = st.lists(
    st.tuples(
        st.sampled_from(("a.x.", "b.y.x.", "b.y.", "z.")),
        st.sampled_from((A, AAAA)),
        st.sampled_from((0, 1232)),
        st.sampled_from((("192.0.2.1", 40000), ("192.0.2.2", 40001))),
    ),
    max_size=20,
)


def corefile_of(blocks: list[tuple[str, list[str], list[str]]]) -> str:
    """The blocks as text; all of them have views, so that they may have the same zones."""
    parts = []
    for number, (zone, conditions, options) in enumerate(blocks):
        expressions = "\n".join(f"expr {condition}" for condition in conditions)
        templates = "\n".join(f"template ANY ANY {{\n{option.replace('TEXT', f't{number}')}\n}}" for option in options)
        parts.append(f"{zone} {{\nview v{number} {{\n{expressions}\n}}\n{templates}\n}}\n")
    return "".join(parts)


@given(BLOCKS, QUESTIONS)
def test_the_table_changes_no_answer_of_views(
    blocks: list[tuple[str, list[str], list[str]]], questions: list[tuple[str, int, int, tuple[str, int]]]
) -> None:
    server = server_of_blocks(configured(corefile_of(blocks)))
    for name, qtype, payload_bytes, client in questions:
        packet = query(name, qtype, payload_bytes=payload_bytes)
        kept, anew = kept_and_anew(server, packet, client)
        assert kept == anew, (corefile_of(blocks), name, client)
