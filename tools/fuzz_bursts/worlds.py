"""Rounds of random datagrams and changes for both readers; everything that happens to one happens to the other."""

from __future__ import annotations

import asyncio
import os
import random
import select
import socket
import time
from collections import Counter
from itertools import chain, zip_longest
from typing import Any, Final

from structlog.testing import capture_logs

from kdns.answers.response import Reuse
from kdns.answers.table import AnswerTable, packet_key
from kdns.dnsserver.io.burst import _burst
from kdns.dnsserver.io.burst.event_loop import BURST, BurstEventLoop
from kdns.dnsserver.io.burst.sampling import Sampling
from kdns.dnsserver.io.request_metrics import Requests
from tools.fuzz_bursts.answers import answer_to, defective_answers
from tools.fuzz_bursts.packets import Packets
from tools.fuzz_bursts.sides import CLIENTS, LISTENERS, Listener, Side

ROUNDS: Final = 200
"""The rounds of one world, before it ends with answers that only a defect could put into the table."""
TABLE_ROUNDS: Final = 20
"""The tables are compared once in so many rounds."""
PACKETS: Final = (1, 3, 30, 100, 200)
"""So many packets are in a round: up to more than two batches of the compiled code for one socket."""
KEYED_BYTES: Final = 17
"""Both readers give the same keys to packets of this size; in shorter ones an OPT has no room."""
WAIT_S: Final = 0.002
SUBJECTS: Final = 20
TABLE_BYTES: Final = (100_000, 1_000_000, 4_000_000)
MARGIN_S: Final = 0.3
"""TTLs count down by the clock, all of a world at once. No round begins so shortly before that."""
LATER_S: Final = 1e6
"""Beyond the end of any run."""


class Finding(Exception):  # noqa: N818 - it is what a fuzzer looks for
    """The two readers differ, or one of them failed."""


class Late(Exception):  # noqa: N818 - no error: the machine was busy
    """A round took so long that TTLs counted down within it; its world is given up."""


class World:
    """Both readers from empty tables on. The seed decides everything but the time."""

    def __init__(self, seed: str, counts: Counter[str]) -> None:
        self._chance = random.Random(seed)
        self._counts = counts
        self._packets = Packets(self._chance, counts)
        max_bytes = self._chance.choice(TABLE_BYTES)
        compiled = BurstEventLoop()
        self._bursts = compiled.bursts
        self._sides = Side(asyncio.SelectorEventLoop(), max_bytes), Side(compiled, max_bytes)
        self._began_s = time.monotonic()

    def play(self) -> None:
        """Plays all rounds; raises Finding at the first difference."""
        try:
            with capture_logs() as logged:
                for number in range(1, ROUNDS + 1):
                    self._play_round()
                    if number % TABLE_ROUNDS == 0:
                        compare(*(side.tables_now() for side in self._sides))
                    if logged:
                        raise Finding(f"it was logged: {logged[0]}")
            with capture_logs() as logged:
                self._meet_defects()
            self._counts["defects reported"] += len(logged)
        except Late:
            self._counts["worlds given up"] += 1
        finally:
            for side in self._sides:
                side.close()

    def _play_round(self) -> None:
        second = self._begun_second()
        self._change_answers()
        self._send()
        interpreted, compiled = [side.take_received() for side in self._sides]
        if int(time.monotonic() - self._began_s) != second:
            raise Late
        compare(interpreted, compiled)
        self._learn(interpreted["misses"])
        self._counts["rounds"] += 1
        self._counts["responses"] += sum(len(client) for clients in interpreted["responses"] for client in clients)
        self._counts["misses"] += sum(map(len, interpreted["misses"]))

    def _begun_second(self) -> int:
        """Returns the age of the world in whole seconds. The next one does not begin within MARGIN_S."""
        if (time.monotonic() - self._began_s) % 1 > 1 - MARGIN_S:
            time.sleep(MARGIN_S)
        return int(time.monotonic() - self._began_s)

    def _change_answers(self) -> None:
        """Expires some answers of both tables or lets them be renewed, forgets subjects, or clears the tables."""
        chance, now_s = self._chance, time.monotonic()
        forgotten = chance.sample(range(SUBJECTS), k=chance.choice((0, 0, 0, 1, 3)))
        is_cleared = chance.random() < 0.01
        for number in range(len(LISTENERS)):
            keys = list(self._sides[0].listeners[number].partition.answers)
            expired = {key: chance.random() < 0.3 for key in chance.sample(keys, k=min(len(keys), 5))}
            for side in self._sides:
                answers, table = side.listeners[number].partition.answers, side.tables[number]
                for key, is_expired in expired.items():
                    answers[key].until_s = now_s - 1
                    answers[key].expires_s = now_s - 1 if is_expired else now_s + LATER_S
                if forgotten:
                    table.forget(forgotten)
                if is_cleared:
                    table.clear()

    def _send(self) -> None:
        """Sends the datagrams of a round, and has them read. Some sockets are not followed while they arrive."""
        chance = self._chance
        listeners = chance.sample(range(len(LISTENERS)), k=chance.randint(1, len(LISTENERS)))
        left = [number for number in range(len(LISTENERS)) if chance.random() < 0.1]
        for side in self._sides:
            for number in left:
                side.run(side.listeners[number].end)
        count = chance.choice(PACKETS)
        for _ in range(count):
            packet, listener, client = self._packets.next(), chance.choice(listeners), chance.randrange(CLIENTS)
            for side in self._sides:
                side.clients[listener][client].send(packet)
        self._counts["packets"] += count
        wait_s = WAIT_S if chance.random() < 0.05 else 0.0
        for side in self._sides:
            for number in left:
                side.run(side.listeners[number].begin)
            side.step(wait_s)

    def _learn(self, misses: list[list[bytes]]) -> None:
        """Puts other answers to some of the missed packets into both tables."""
        chance = self._chance
        for packet in chain(*misses):
            key = packet_key(packet) if len(packet) >= KEYED_BYTES else b""
            if not key or chance.random() < 0.8:
                continue
            self._packets.learn(packet)
            self._counts["answers put into tables"] += 1
            choices = chance.getrandbits(64)
            for listener in chain(*(side.listeners for side in self._sides)):
                self._remember(listener, packet, key, random.Random(choices))

    def _remember(self, listener: Listener, packet: bytes, key: bytes, chance: random.Random) -> None:
        """Puts an answer into a table; equal choices make equal answers."""
        subjects = tuple(chance.choices(range(SUBJECTS), k=chance.randrange(3)))
        answer = answer_to(packet, key, chance, self._began_s)
        listener.server.table.remember(listener.partition, key, answer, Reuse(subjects))

    def _meet_defects(self) -> None:
        """Has the compiled code meet answers that no code makes. It may report a failure, and must survive."""
        side, chance = self._sides[1], self._chance
        listener, client = side.listeners[0], side.clients[0][0]
        bursts = self._bursts
        side.loop.set_exception_handler(lambda *_: None)  # Python meets them too, once compiled code has given up
        answers, fd = listener.partition.answers, listener.socket.fileno()
        deeds = (
            listener.server.table.clear,
            answers.clear,
            lambda: bursts.leave(fd),
            lambda: bursts.select(0),
            lambda: 1 / 0,
            lambda: "yes",
        )
        for answer in defective_answers(deeds):
            packets = [self._packets.next() for _ in range(chance.choice(PACKETS))]
            answers.update({packet_key(packet): answer for packet in packets if len(packet) >= KEYED_BYTES})
            listener.partition.answers = answers
            for packet in packets:
                client.send(packet)
            side.step()
            answers.clear()
            side.run(listener.end)
            side.run(listener.begin)
            side.take_received()
            self._counts["packets to defects"] += len(packets)
        read_closed_descriptors()


def read_closed_descriptors() -> None:
    """Has compiled code read a listener that was closed, and one whose descriptor is that of a pipe now."""
    with socket.socket(type=socket.SOCK_DGRAM) as listener, select.epoll() as epoll:
        listener.bind(("127.0.0.1", 0))
        listener.sendto(b"packet", listener.getsockname())
        fd = listener.fileno()
        epoll.register(fd, select.EPOLLIN)
        listeners: dict[int, Any] = {fd: (AnswerTable().partition("udp", 4), Requests(), [], Sampling())}
        with listener.dup():  # epoll reports the socket until all of its descriptors are closed
            listener.close()
            _burst.wait(epoll.fileno(), 0.0, listeners, BURST)
            pipe = os.pipe()
            if fd not in pipe:
                os.dup2(pipe[0], fd)
            _burst.wait(epoll.fileno(), 0.0, listeners, BURST)
            for each in {*pipe, fd}:
                os.close(each)


def compare(interpreted: dict[str, Any], compiled: dict[str, Any]) -> None:
    """Raises Finding if the readers differ."""
    for what, value in interpreted.items():
        if compiled[what] != value:
            raise Finding(f"{what}: {_difference(value, compiled[what])}")


def _difference(interpreted: Any, compiled: Any) -> str:
    """Describes the first difference of two values."""
    if isinstance(interpreted, dict) and isinstance(compiled, dict):
        for key in interpreted | compiled:
            if interpreted.get(key) != compiled.get(key):
                return f"{key!r}: {_difference(interpreted.get(key), compiled.get(key))}"
    if isinstance(interpreted, (list, tuple)) and isinstance(compiled, (list, tuple)):
        for number, (one, other) in enumerate(zip_longest(interpreted, compiled)):
            if one != other:
                return f"{number}: {_difference(one, other)}"
    return f"{interpreted!r} in Python, {compiled!r} compiled"
