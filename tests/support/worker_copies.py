"""A server and a worker's copies of its answers in one process, with the bytes of all messages between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from dns_chain import held

from kdns.dnsserver.answers.answer import ResponseKind
from kdns.dnsserver.answers.response import Subject
from kdns.dnsserver.answers.table import packet_key
from kdns.dnsserver.blocks import Exchange, Server
from kdns.dnsserver.io.workers.copies import AnswerCopies
from kdns.dnsserver.io.workers.feed import Feed
from kdns.dnsserver.io.workers.messages import Message, Report, framed, messages

NUMBER = 7


@dataclass
class Frames:
    """Messages to the copies, applied by `deliver`."""

    copies: AnswerCopies
    is_full: bool = False
    frames: list[bytes] = field(default_factory=list)

    def send(self, message: Message) -> None:
        self.send_frame(framed(message))

    def send_frame(self, frame: bytes) -> None:
        self.frames.append(frame)

    def deliver(self) -> None:
        frames, self.frames = self.frames, []
        for message in messages(memoryview(b"".join(frames))):
            self.copies.apply(message)


class CopiedServer:
    """Answers as a worker does: from copies, and otherwise from the server, which sends a copy of what it keeps."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.copies = AnswerCopies()
        self.link = Frames(self.copies)
        self.feed = Feed(self.link)
        self.hits = 0
        server.table.copies = self

    def forget(self, subjects: Collection[Subject]) -> None:
        self.feed.forget(NUMBER, subjects)

    def clear(self) -> None:
        self.feed.clear(NUMBER)

    def respond(self, packet: bytes, now_s: float = 0.0) -> bytes:
        self.link.deliver()
        copy = held(self.copies.partition(NUMBER, 4), packet, now_s)
        if copy:
            self.hits += 1
            return copy.wire(packet)
        partition = self.server.table.partition("udp", 4)
        answer = held(partition, packet, now_s)
        if answer:
            wire = answer.wire(packet)
        else:
            exchange = self.server.respond(packet, partition, received_s=now_s)
            assert isinstance(exchange, Exchange)
            wire = exchange.wire
        if kept := partition.answers.get(packet_key(packet)):
            self.feed.keep(NUMBER, 4, kept)
        return wire

    def reports(self) -> list[Report]:
        """What the worker reports now, as it arrives at the server."""
        self.link.deliver()
        for answer, partition in self.copies.used():
            partition.count(answer)
        found = list(messages(memoryview(b"".join(map(framed, self.copies.reports())))))
        for report in found:
            self.feed.add_uses(report)
        return found

    def sent(self) -> Counter[ResponseKind]:
        """How often each kind of response was sent by both."""
        counted = Counter(dict(self.server.table.partition("udp", 4).totals()))
        for report in self.reports():
            for _, _, kind, times in report.kinds:
                counted[kind] += times
        return counted
