"""For random server blocks with views and templates, questions and clients: the table changes no answer."""

from __future__ import annotations

from dns_chain import held
from harness import shown
from hypothesis import given
from hypothesis import strategies as st
from integration import server_of_corefile

from kdns.dns.message import query
from kdns.dns.types import AAAA, A
from kdns.dnsserver.blocks import Exchange, Server

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


def ask(server: Server, packet: bytes, client: tuple[str, int], *, from_table: bool) -> bytes:
    partition = server.table.partition("udp", 4)
    if from_table and (answer := held(partition, packet)):
        return answer.wire(packet)
    outcome = server.respond(packet, partition, client)
    assert isinstance(outcome, Exchange)
    return outcome.wire


@given(BLOCKS, QUESTIONS)
def test_the_table_changes_no_answer_of_views(
    blocks: list[tuple[str, list[str], list[str]]], questions: list[tuple[str, int, int, tuple[str, int]]]
) -> None:
    server = server_of_corefile(corefile_of(blocks), {})
    for name, qtype, payload_bytes, client in questions:
        packet = query(name, qtype, payload_bytes=payload_bytes)
        kept, anew = (ask(server, packet, client, from_table=from_table) for from_table in (True, False))
        assert shown(kept) == shown(anew), (corefile_of(blocks), name, client)
