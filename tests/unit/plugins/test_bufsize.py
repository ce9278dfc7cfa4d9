"""How large an answer over UDP may be: what the client takes, and what the server block allows."""

import pytest
from decoded_message import decode
from dns_chain import Behind, respond

from kdns.answers.chain import Block, Chain, Sees
from kdns.answers.response import Response
from kdns.dns.message import query
from kdns.dns.rrset import RRset
from kdns.dns.types import A
from kdns.dnsserver.blocks import Server

ADDRESSES = tuple((0x0A000000 + number).to_bytes(4, "big") for number in range(300))
"""An answer of 4.8 kB."""


@pytest.mark.parametrize(
    ("payload_bytes", "udp_bytes", "limit"),
    [
        (0, 1232, 512), (512, 1232, 512), (700, 1232, 700), (1232, 1232, 1232), (4096, 1232, 1232), (65535, 1232, 1232),
        (4096, 4096, 4096), (65535, 4096, 4096), (1400, 4096, 1400), (0, 4096, 512), (4096, 512, 512),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_cut_over_udp_only(payload_bytes: int, udp_bytes: int, limit: int) -> None:
    many = Behind(lambda request: Response(answer=(RRset(request.query.name, A, 5, ADDRESSES),)), Sees.PACKET)
    server = Server("dns://:53", (Block(".", Chain((many,)), udp_bytes=udp_bytes),))
    packet = query("many.example.", A, payload_bytes=payload_bytes)
    for _ in range(2):
        cut, whole = respond(server, packet), respond(server, packet, "tcp")
        assert limit - 16 < len(cut) <= limit
        assert "tc" in decode(cut).flags
        assert "tc" not in decode(whole).flags
        assert len(decode(whole).answer) == len(ADDRESSES)
