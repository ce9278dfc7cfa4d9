"""`view`: which of several blocks answers, what the table keeps, and labels."""

import pytest
from configured import configured
from dns_chain import held, read, response_at_once, server_of_blocks
from harness import shown

from kdns.answers.chain import Request
from kdns.answers.response import PRIVATE
from kdns.dns.message import query
from kdns.dns.query import HEADER_BYTES
from kdns.dns.types import AAAA, MX, A
from kdns.dnsserver.blocks import Server
from kdns.errors import CorefileError
from kdns.serverblocks.config import clashes


def server_of(corefile: str) -> Server:
    """One server with all blocks of a Corefile, as a listener has them."""
    return server_of_blocks(configured(corefile))


def block(zone: str, text: str, *options: str) -> str:
    """A block that answers every question with a text."""
    template = f'template IN ANY {{\nanswer "{{{{ .Name }}}} 5 IN TXT {text}"\n}}'
    return "\n".join((f"{zone} {{", *options, template, "}\n"))


def view(name: str, expression: str) -> str:
    return f"view {name} {{\nexpr {expression}\n}}"


BY_TYPE = block("x", "a", view("a", "type() == 'A'")) + block("x", "aaaa", view("aaaa", "type() == 'AAAA'"))
BY_CLIENT = block("x", "near", view("near", "incidr(client_ip(), '192.0.2.0/24')")) + block("x", "all")
BY_NETWORKS = block("x", "near", view("near", "\"any(['10.0.0.0/8', '192.0.2.0/24'], incidr(client_ip(), #))\""))
BY_NETWORKS += block("x", "all")
QUOTED = "\"count(split(name(), '.'), {len(#) > 0}) > 2\""

CHOICES = [
    (BY_TYPE, "n.x.", A, "a", True),
    (BY_TYPE, "n.x.", AAAA, "aaaa", True),
    (BY_TYPE, "n.x.", MX, "REFUSED", False),
    (BY_TYPE + block("x", "rest"), "n.x.", MX, "rest", True),
    (block("x", "first") + BY_TYPE, "n.x.", A, "first", True),
    (BY_CLIENT, "n.x.", A, "near", False),
    (BY_NETWORKS, "n.x.", A, "near", False),
    (block("x", "deep", view("deep", QUOTED)) + block("x", "all"), "a.n.x.", A, "deep", True),
    (block("x", "deep", view("deep", QUOTED)) + block("x", "all"), "n.x.", A, "all", True),
    (block("x", "v", view("v", '"any(1..9999, # < 0)"')) + block("x", "all"), "n.x.", A, "all", True),
    (block("x", "v", view("v", "client_ip() == '1.1.1.1'")) + block("x", "all"), "n.x.", A, "all", False),
    (block("x", "v", view("v", "true")) + block("y.x", "closer"), "n.y.x.", A, "closer", True),
    (block("y.x", "v", view("v", "type() == 'MX'")) + block("x", "around"), "n.y.x.", A, "around", True),
    (block("x", "v", view("v", "1")) + block("x", "all"), "n.x.", A, "all", True),
    (block("x", "v", view("v", "int('x') == 1")) + block("x", "all"), "n.x.", A, "all", True),
    (block("x", "v", "view v"), "n.x.", A, "v", True),
    (block("x", "v", view("v", "metadata('view/name') == 'v'")) + block("x", "all"), "n.x.", A, "all", False),
    (block("x", "v", "metadata", view("v", "metadata('view/name') == 'v'")) + block("x", "all"), "n.x.", A, "v", False),
]


@pytest.mark.parametrize(("corefile", "name", "qtype", "answer", "is_cached"), CHOICES)
def test_the_first_block_that_takes_a_query_answers_it(
    corefile: str, name: str, qtype: int, answer: str, is_cached: bool
) -> None:
    server = server_of(corefile)
    packet = query(name, qtype, payload_bytes=1232)
    wire = response_at_once(server, packet, ("192.0.2.1", 40000)).wire
    reply = shown(wire)
    assert [line.split('"')[1] for line in reply["answer"]] == ([answer] if answer != "REFUSED" else [])
    assert (reply["rcode"] == "REFUSED") is (answer == "REFUSED")
    cached = held(server.table.partition("udp", 4), packet)
    assert (cached is not None) is is_cached
    assert cached is None or cached.wire(packet)[HEADER_BYTES:] == wire[HEADER_BYTES:]


def test_the_name_of_the_view_is_a_label_and_part_of_requests() -> None:
    server = server_of(BY_TYPE)
    partition = server.table.partition("udp", 4)
    for qtype in (A, AAAA):
        server.respond(query("n.x.", qtype), partition)
    answers = partition.answers.values()
    assert {(answer.kind.view, answer.kind.zone) for answer in answers} == {("a", "x."), ("aaaa", "x.")}


def test_a_question_of_the_server_s_own_goes_to_the_client_s_view_and_is_not_kept() -> None:
    server = server_of(BY_CLIENT)
    far, near = (server.resolve(request_of(address)) for address in ("198.51.100.1", "192.0.2.1"))
    for reply, text in ((far, b"all"), (near, b"near")):
        assert reply is not None
        assert text in bytes(reply.answer[0].rdata[0])  # type: ignore[union-attr, arg-type] # nobody waits; a TXT
        assert reply.reuse is PRIVATE  # type: ignore[union-attr] # nobody waits


def request_of(address: str) -> Request:
    return Request(read(query("n.x.", A)), (address, 1))


def test_blocks_with_views_may_have_the_same_zones() -> None:
    assert not list(clashes([(server, ("127.0.0.1",)) for server in configured(BY_TYPE)], 53))
    with pytest.raises(CorefileError, match="already served"):
        configured(BY_TYPE + block("x", "b") + block("x", "c"))
