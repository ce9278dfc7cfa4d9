"""Exchanges over UDP with servers on loopback: what is sent, what is believed, and what is left behind."""

import asyncio
import socket
from collections import Counter
from dataclasses import replace

import pytest
from fake_upstream import (
    ADDRESS,
    RECORD,
    FakeServer,
    Silent,
    answer,
    fake_server,
    honest,
    query_of,
    question_bytes,
    respond_to,
    until,
    upstream_of,
)

from kdns.net import HostPort
from kdns.upstream.io import exchanges, udp
from kdns.upstream.io.upstreams import SocketUpstream
from kdns.upstream.message import question_of, response_to
from kdns.upstream.upstream import UpstreamSpec, UpstreamTimeoutError, UpstreamUnreachableError

QUERY = query_of(payload_bytes=1232)
FORGED = RECORD.replace(ADDRESS, bytes(4))


async def asked(upstream: SocketUpstream, timeout_s: float = 5.0) -> bytes:
    return response_to(QUERY, await upstream.exchange(QUERY, "udp", timeout_s))


async def test_ids_ports_and_cases_are_random_and_the_rest_is_the_clients() -> None:
    async with fake_server() as server, upstream_of(server.spec) as upstream:
        for _ in range(600):
            assert await asked(upstream) == respond_to(QUERY)
        assert server.streamed == []
        assert len({query[:2] for query in server.received}) > 590
        assert len({question_bytes(query) for query in server.received}) > 550
        assert {query[2:].lower() for query in server.received} == {QUERY.packet[2:].lower()}
        uses = Counter(server.ports)
        assert len(uses) >= udp.SOCKETS
        assert max(uses.values()) <= udp.QUERIES_OF_SOCKET
        changes = sum(one != next_one for one, next_one in zip(server.ports, server.ports[1:], strict=False))
        assert changes > 500
        assert upstream.udp.counts.opened == len(uses)
        assert upstream.udp.counts.reused == 600 - len(uses)


async def test_sockets_are_replaced_when_they_had_their_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp, "SOCKETS", 1)
    async with fake_server() as server, upstream_of(server.spec) as upstream:
        for _ in range(2 * udp.QUERIES_OF_SOCKET + 1):
            await asked(upstream)
        assert upstream.udp.counts.opened == 3


async def test_sockets_are_replaced_when_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp, "SOCKET_S", 0.0)
    async with fake_server() as server, upstream_of(server.spec) as upstream:
        for _ in range(50):
            await asked(upstream)
        assert upstream.udp.counts.opened == 50
        assert len(set(server.ports)) > 40  # the kernel may draw a port again


@pytest.mark.parametrize("change", ["id", "question", "type", "query", "short", "two questions"])
async def test_what_does_not_answer_is_ignored(change: str) -> None:
    def responses(query: bytes) -> list[bytes]:
        true = answer(query, FORGED)
        forged = {
            "id": bytes((true[0] ^ 1, true[1])) + true[2:],
            "question": true.replace(b"\x03", b"\x04", 1)[:16] + b"x" + true[16:],
            "type": true[: 12 + len(question_bytes(query)) - 3] + b"\x1c" + true[12 + len(question_bytes(query)) - 2 :],
            "query": true[:2] + b"\x01" + true[3:],
            "short": true[:11],
            "two questions": true[:5] + b"\x02" + true[6:],
        }[change]
        return [forged, answer(query)]

    async with fake_server(responses) as server, upstream_of(server.spec) as upstream:
        assert await asked(upstream) == respond_to(QUERY)
        assert sum(upstream.udp.counts.ignored.values()) == 1
        assert server.streamed == []


async def test_a_response_from_another_socket_is_not_even_received() -> None:
    async with fake_server(lambda _: []) as server, upstream_of(server.spec) as upstream:
        exchange = asyncio.create_task(asked(upstream, 0.2))
        await until(lambda: bool(server.received))
        with socket.socket(type=socket.SOCK_DGRAM) as other:
            other.sendto(answer(server.received[0], FORGED), ("127.0.0.1", server.ports[0]))
        with pytest.raises(UpstreamTimeoutError, match=r"timed out after 0\.2 s"):
            await exchange
        assert not upstream.udp.counts.ignored


def lower(query: bytes) -> list[bytes]:
    return [answer(query[:12] + question_bytes(query).lower() + query[12 + len(question_bytes(query)) :])]


def swapped(query: bytes) -> list[bytes]:
    question = question_bytes(query)
    return [answer(query[:12] + question[:-4].swapcase() + question[-4:] + query[12 + len(question) :], FORGED)]


async def test_names_come_back_in_the_clients_case() -> None:
    def whole(query: bytes) -> list[bytes]:
        """A record that repeats the name, as of servers that do not compress."""
        return [answer(query, question_bytes(query)[:-4] + RECORD[2:])]

    async with fake_server(whole) as server, upstream_of(server.spec) as upstream:
        assert await asked(upstream) == respond_to(QUERY, question_of(QUERY)[:-4] + RECORD[2:])


async def test_a_response_in_another_case_is_checked_over_tcp() -> None:
    async with fake_server(swapped) as server, upstream_of(server.spec) as upstream:
        for number in range(1, 4):
            assert await asked(upstream) == respond_to(QUERY)
            assert len(server.streamed) == upstream.udp.counts.ignored["case"] == number
        assert upstream.udp.keeps_case


async def test_an_upstream_that_does_not_keep_the_case_is_asked_in_the_clients() -> None:
    async with fake_server(lower, lower) as server, upstream_of(server.spec) as upstream:
        for _ in range(3):
            assert await asked(upstream) == respond_to(QUERY)
        assert not upstream.udp.keeps_case
        assert len(server.streamed) == 1
        assert question_bytes(server.received[-1]) == QUERY.packet[12 : QUERY.question_end]


@pytest.mark.parametrize("keeps_case", [True, False])
async def test_a_message_about_another_question_is_not_taken(*, keeps_case: bool) -> None:
    def responses(query: bytes) -> list[bytes]:
        asked_in_lower = query[:12] + query[12:].lower()
        question, other = (question_bytes(query_of(name).packet) for name in ("www.example.com", "www.example.org"))
        about_another = answer(asked_in_lower, FORGED).replace(question, other)
        of_another_type = answer(asked_in_lower, FORGED).replace(question, question[:-3] + b"\x1c" + question[-2:])
        return [about_another, of_another_type, answer(query)]

    async with fake_server(responses) as server, upstream_of(server.spec) as upstream:
        upstream.udp.keeps_case = keeps_case
        assert await asked(upstream) == respond_to(QUERY)
        assert upstream.udp.counts.ignored == {"question": 2}
        assert server.streamed == []


async def test_case_is_not_kept_only_by_udp_without_tcp_to_check_it() -> None:
    async with fake_server(lower, lambda _: []) as server, upstream_of(server.spec) as upstream:
        with pytest.raises(UpstreamTimeoutError):
            await asked(upstream, 0.1)
        assert upstream.udp.keeps_case


async def test_an_error_without_its_question_is_checked_over_tcp() -> None:
    refuse = lambda query: [query[:2] + b"\x80\x01" + bytes(8)]  # noqa: E731 - one line of a table
    async with fake_server(refuse) as server, upstream_of(server.spec) as upstream:
        assert await asked(upstream) == respond_to(QUERY)


async def test_a_spoofer_who_knows_the_port_has_few_guesses() -> None:
    """It sends from the server's own address, knows port and spelling, and guesses ids."""
    guesses = 0

    def flood(query: bytes) -> list[bytes]:
        nonlocal guesses
        true = int.from_bytes(query[:2], "big")
        forged = answer(query, FORGED)[2:]
        guesses += 200
        return [((true + 1 + index) % 65536).to_bytes(2, "big") + forged for index in range(200)]

    async with fake_server(flood) as server, upstream_of(server.spec) as upstream:
        for _ in range(100):
            assert await asked(upstream) == respond_to(QUERY)
        assert len(server.streamed) == 100
        assert sum(upstream.udp.counts.ignored.values()) <= 100 * udp.MAX_WRONG < guesses


async def test_a_spoofer_who_guesses_everything_is_not_believed() -> None:
    """Ids, ports and spellings at random, from the server's own address, while the server is slow.

    The upstream has an address of its own, so that no other test receives the guesses.
    """
    silent, source = Silent(), "127.0.0.7"
    async with fake_server(silent) as server, upstream_of(replace(server.spec, source_address=source)) as upstream:
        exchange = asyncio.create_task(asked(upstream))
        await until(lambda: bool(silent.queries))
        number = 0
        for _ in range(200):
            for _ in range(100):
                number = (number * 1103515245 + 12345) % 2**31
                forged = answer(number.to_bytes(4, "big")[2:] + QUERY.packet[2:], FORGED)
                server.sock.sendto(forged, (source, 32768 + number % 28232))
            await asyncio.sleep(0)
        server.sock.sendto(answer(silent.queries[0]), (source, server.ports[0]))
        assert await exchange == respond_to(QUERY)


async def test_responses_that_come_too_late_are_no_guesses() -> None:
    silent = Silent()
    async with fake_server(silent) as server, upstream_of(server.spec) as upstream:
        results = await asyncio.gather(*(asked(upstream, 0.05) for _ in range(300)), return_exceptions=True)
        assert {type(result) for result in results} == {UpstreamTimeoutError}
        for query, port in zip(silent.queries, server.ports, strict=True):
            server.sock.sendto(answer(query), ("127.0.0.1", port))
        server.udp = honest
        assert await asked(upstream) == respond_to(QUERY)
        assert set(upstream.udp.counts.ignored) <= {"late"}
        assert server.streamed == []


class FirstIdAgain:
    """Draws the first socket and id 0 for each query, and other ids, from 1 on, where that one is taken."""

    def __init__(self) -> None:
        self.others = iter(range(1, 100))

    def take(self, size: int) -> bytes:
        return next(self.others).to_bytes(2, "big") if size == 2 else bytes(size)


async def test_the_id_of_a_query_whose_answer_may_still_come_is_not_drawn_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchanges, "Entropy", FirstIdAgain)
    silent = Silent()
    async with fake_server(silent) as server, upstream_of(server.spec) as upstream:
        with pytest.raises(UpstreamTimeoutError):
            await asked(upstream, 0.05)
        exchange = asyncio.create_task(asked(upstream))
        await until(lambda: len(silent.queries) == 2)
        late, waiting = silent.queries
        server.sock.sendto(answer(late, FORGED), ("127.0.0.1", server.ports[0]))
        server.sock.sendto(answer(waiting), ("127.0.0.1", server.ports[1]))
        assert await exchange == respond_to(QUERY)
        assert upstream.udp.counts.ignored == {"late": 1}


@pytest.mark.parametrize("source", ["", "127.0.0.7"])
async def test_a_port_where_nobody_listens(source: str) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    async with upstream_of(UpstreamSpec(HostPort("127.0.0.1", port), source_address=source)) as upstream:
        for _ in range(3):
            with pytest.raises(UpstreamUnreachableError, match="connection refused"):
                await asked(upstream)


async def test_no_way_to_send() -> None:
    async with upstream_of(UpstreamSpec(HostPort("127.0.0.1", 53), source_address="192.0.2.9")) as upstream:
        with pytest.raises(UpstreamUnreachableError, match="cannot assign requested address"):
            await asked(upstream)


async def test_thousands_at_once_are_answered_and_bounded() -> None:
    silent = Silent()
    async with fake_server(silent) as server, upstream_of(server.spec, max_exchanges=3000) as upstream:
        tasks: list[asyncio.Task[bytes]] = []
        for _ in range(62):
            tasks += [asyncio.create_task(asked(upstream, 30.0)) for _ in range(50)]
            await until(lambda: len(silent.queries) == min(len(tasks), 3000))  # noqa: B023 - called before it changes
        for query, port in zip(silent.queries, server.ports, strict=True):
            server.sock.sendto(answer(query), ("127.0.0.1", port))
        results = Counter(str(outcome) for outcome in await asyncio.gather(*tasks, return_exceptions=True))
        limit = "too many queries wait for upstreams; expected at most 3000"
        assert results == {str(respond_to(QUERY)): 3000, limit: 100}


async def test_no_more_descriptors_than_there_are() -> None:
    async with fake_server() as server, upstream_of(server.spec, max_descriptors=3) as upstream:
        for _ in range(10):
            assert {*await asyncio.gather(*(asked(upstream) for _ in range(50)))} == {respond_to(QUERY)}
    async with upstream_of(server.spec, max_descriptors=0) as upstream:
        for transport in ("udp", "tcp"):
            with pytest.raises(UpstreamUnreachableError, match="all 0 descriptors are in use"):
                await upstream.exchange(QUERY, transport, 1.0)


async def test_closing_fails_what_is_pending_and_so_does_giving_up() -> None:
    async with fake_server(lambda _: []) as server, upstream_of(server.spec) as upstream:
        tasks = [asyncio.create_task(asked(upstream, 60.0)) for _ in range(5)]
        await until(lambda: len(server.received) == 5)
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        upstream.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(result) for result in results] == ["", *["the upstream is no longer used"] * 4]


async def test_ipv6() -> None:
    server = FakeServer()
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
        sock.setblocking(False)
        server.sock.close()
        server.sock = sock
        asyncio.get_running_loop().add_reader(sock, server.read_datagrams)
        spec = replace(server.spec, address=HostPort("::1", sock.getsockname()[1]))
        async with upstream_of(spec) as upstream:
            assert await asked(upstream) == respond_to(QUERY)
        asyncio.get_running_loop().remove_reader(sock)
