"""`dns64`: what the recorded cases do not say."""

import pytest
from decoded_message import decode
from dns_chain import Behind, FakeWorld, response_at_once, server_of

from kdns.answers.chain import Sees
from kdns.answers.response import NEVER, Response, Reuse
from kdns.dns.message import query
from kdns.dns.query import AA, AD, RA
from kdns.dns.rrset import RRset
from kdns.dns.types import AAAA, CNAME, REFUSED, RRSIG, SERVFAIL, A
from kdns.plugins.changes.dns64 import Dns64, Dns64Config

SIX, FOUR = ("2001:db8::9", 5), ("192.0.2.9", 5)
ADDRESS = (b"\xc0\x00\x02\x01",)


def behind(four: Response, six: Response) -> Behind:
    """Answers A and AAAA as it is told."""
    return Behind(lambda request: {A: four, AAAA: six}[request.query.qtype], Sees.PACKET)


ALIAS = RRset("b.", CNAME, 300, ("c.",))
SIGNATURE = RRset("c.", RRSIG, 300, (bytes(18) + b"\x00" + bytes(64),))
FOUND = Response(0, AA | RA | AD, (ALIAS, RRset("c.", A, 300, ADDRESS), SIGNATURE), reuse=Reuse(("a",)))
EMPTY = Response(0, AA, reuse=Reuse(("b",)))
EXISTS = Response(0, AA, (RRset("b.", AAAA, 9, (bytes(16),)),), reuse=Reuse(("b",)))


@pytest.mark.parametrize(
    ("four", "six", "options", "types", "rcode", "counted"),
    [
        pytest.param(FOUND, EMPTY, {}, [CNAME, AAAA], "NOERROR", 1, id="a CNAME stays, a signature goes"),
        pytest.param(FOUND, EXISTS, {}, [AAAA], "NOERROR", 0, id="AAAA exists"),
        pytest.param(FOUND, EXISTS, {"translate_all": True}, [CNAME, AAAA], "NOERROR", 1, id="all are translated"),
        pytest.param(EMPTY, EMPTY, {}, [], "NOERROR", 1, id="neither"),
        pytest.param(Response(SERVFAIL), EMPTY, {}, [], "NOERROR", 1, id="A fails, that there is no AAAA is known"),
        pytest.param(Response(SERVFAIL), Response(REFUSED), {}, [], "SERVFAIL", 1, id="both fail"),
    ],
)
def test_answers(
    four: Response, six: Response, options: dict[str, bool], types: list[int], rcode: str, counted: int
) -> None:
    setup = FakeWorld()
    server = server_of(Dns64(Dns64Config(**options), setup), behind(four, six))  # type: ignore[arg-type]
    decoded = decode(response_at_once(server, query("b.", AAAA), SIX, family=6).wire)
    assert ([rrset.rtype for rrset in decoded.answer], decoded.rcode) == (types, rcode)
    if types == [CNAME, AAAA]:
        assert decoded.answer[1] == RRset("c.", AAAA, 300, (b"\x00\x64\xff\x9b" + bytes(8) + ADDRESS[0],))
        assert {"aa", "ra"} <= decoded.flags
        assert "ad" not in decoded.flags
    kept = NEVER not in {four.reuse, six.reuse} or not counted
    assert len(server.table) == kept
    server.table.partition("udp", 6).totals()
    assert setup.counted["coredns_dns64_requests_translated"].tally("dns://:53").count == counted


def test_a_client_that_validates_and_one_of_ipv4_get_what_there_is() -> None:
    server = server_of(Dns64(Dns64Config(), FakeWorld()), behind(FOUND, EMPTY))
    packet = bytearray(query("b.", AAAA, payload_bytes=1232))
    packet[3] |= 0x10
    packet[-4] |= 0x80
    for question, client in ((bytes(packet), SIX), (query("b.", AAAA), FOUR)):
        assert decode(response_at_once(server, question, client, family=6).wire).answer == ()
