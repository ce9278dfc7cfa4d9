"""`dnstap`: what is in a copy, field by field, and what frames look like."""

import pytest
from dns_chain import FakeWorld, plugin_of, read
from frame_reader import decoded, message_of

from kdns.answers.chain import Forwarded, Request
from kdns.answers.response import Response
from kdns.dns.message import query
from kdns.dns.types import A
from kdns.dnsserver.io import frame_streams as frames
from kdns.net import packed
from kdns.plugins.observers.dnstap import plugin
from kdns.plugins.observers.dnstap.message import Tap, payload, varint
from kdns.values import evolve

PACKET = query("a.example.", A)
SOCKET = "unix:///run/tap"


def built(options: str, setup: FakeWorld) -> plugin.Dnstap:
    return plugin_of(plugin.Dnstap, f"dnstap /run/tap {options}", setup)


def request(client: tuple[str, int], transport: str, received_s: float = 1.25) -> Request:
    return Request(read(PACKET), client, transport=transport, received_s=received_s, metadata={"a/b": "fact"})


@pytest.mark.parametrize(
    ("value", "octets"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (1 << 32, "8080808010")]
)
def test_varints(value: int, octets: str) -> None:
    assert varint(value).hex() == octets


@pytest.mark.parametrize(
    ("client", "transport", "family", "protocol"),
    [
        (("192.0.2.1", 53000), "udp", 1, 1), (("fd00::1", 1), "tcp", 2, 2), (("fe80::1%eth0", 1), "tls", 2, 3),
        (("192.0.2.1", 1), "https", 1, 4), (("192.0.2.1", 1), "quic", 1, 7),
    ],
)  # fmt: skip
def test_copies_of_a_query_and_its_response(
    client: tuple[str, int], transport: str, family: int, protocol: int
) -> None:
    setup = FakeWorld(clock_s=5.5)
    tap = built("full", setup)
    asked = request(client, transport)
    assert tap.serve(asked, lambda _request: Response()) == Response()
    tap.sent(asked, Response(), b"answer", 0.5)
    first, second = setup.framed[SOCKET]
    outer = decoded(first)
    assert {number: outer[number] for number in (1, 2, 15)} == {1: b"node-1", 2: plugin.DEFAULT_VERSION.encode(), 15: 1}
    base = {2: family, 3: protocol, 4: packed(client[0].partition("%")[0]), 6: client[1], 8: 1, 9: 250_000_000}
    assert message_of(first) == {1: 5} | base | {10: PACKET}
    assert message_of(second) == {1: 6} | base | {12: 1, 13: 750_000_000, 14: b"answer"}


def test_without_full_there_are_no_bytes() -> None:
    setup = FakeWorld()
    tap = built("{\nidentity me\nversion v1\n}", setup)
    asked = request(("192.0.2.1", 1), "udp")
    tap.serve(asked, lambda _request: None)
    tap.sent(asked, Response(), b"answer", 0.5)
    for frame in setup.framed[SOCKET]:
        assert {decoded(frame)[number] for number in (1, 2)} == {b"me", b"v1"}
        assert not message_of(frame).keys() & {10, 14}


def test_extra_has_facts() -> None:
    setup = FakeWorld()
    tap = built('{\nextra "{name} {/a/b} {/c} {rcode}"\n}', setup)
    asked = request(("192.0.2.1", 1), "udp")
    reply = tap.serve(asked, lambda _request: Response())
    assert isinstance(reply, Response)
    tap.sent(evolve(asked, metadata={}), reply, b"", 0.0)
    assert [decoded(frame)[3] for frame in setup.framed[SOCKET]] == [b"a.example. fact - -"] * 2


def test_copies_of_what_upstreams_are_asked() -> None:
    setup = FakeWorld(clock_s=9.0)
    tap = built("full", setup)
    asked = request(("192.0.2.1", 7), "udp")
    tap.forwarded(asked, Forwarded(("198.51.100.1", 53), "tcp", b"query", b"response", 2.0, 3.5))
    tap.forwarded(asked, Forwarded(("198.51.100.1", 53), "tcp", b"query", b"", 4.0, 5.0))
    sent = {2: 1, 3: 2, 4: packed("192.0.2.1"), 5: packed("198.51.100.1"), 6: 7, 7: 53, 9: 0, 10: b"query"}
    response = {key: value for key, value in sent.items() if key != 10}
    messages = [message_of(frame) for frame in setup.framed[SOCKET]]
    assert messages[0] == {1: 7, 8: 2} | sent
    assert messages[1] == {1: 8, 8: 2} | response | {12: 3, 13: 500_000_000, 14: b"response"}
    assert messages[2] == {1: 7, 8: 4} | sent
    assert len(messages) == 3


def test_several_readers() -> None:
    setup = FakeWorld()
    tap = plugin_of(plugin.Dnstap, "dnstap /a full\ndnstap tcp://b:1", setup)
    tap.serve(request(("192.0.2.1", 1), "udp"), lambda _request: None)
    assert {endpoint: len(copies) for endpoint, copies in setup.framed.items()} == {"unix:///a": 1, "tcp://b:1": 1}


def test_a_time_is_never_a_nanosecond_too_many() -> None:
    tap = Tap(5, "udp", ("192.0.2.1", 1), 1.9999999999)
    assert [message_of(payload(tap, b"", b""))[number] for number in (8, 9)] == [2, 0]


def test_frames() -> None:
    assert frames.data_frame(b"abc").hex() == "00000003616263"
    assert frames.control_frame(frames.STOP).hex() == "000000000000000400000003"
    start = frames.control_frame(frames.START)
    assert start[:12].hex() == "000000000000002200000002"
    assert start.endswith(b"\0\0\0\1\0\0\0\x16protobuf:dnstap.Dnstap")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\0\0", "without a type"),
        (frames.control_frame(frames.FINISH)[8:], "of type 1, got type 5"),
        (b"\0\0\0\1\0\0\0\1\0\0\0\3abc", "wants b'abc'"),
    ],
)
def test_what_is_no_acceptance(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        frames.control_kind(content, frames.ACCEPT)


@pytest.mark.parametrize("content", [b"\0\0\0\1", frames.control_frame(frames.ACCEPT)[8:]])
def test_what_is_one(content: bytes) -> None:
    assert frames.control_kind(content, frames.ACCEPT) == frames.ACCEPT
