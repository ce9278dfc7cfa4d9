"""A worker whose server does not read keeps a bounded queue, and accounts for every packet."""

from __future__ import annotations

import asyncio
import socket

import pytest
from dns_client import packet
from fake_api import until

from kdns.dnsserver.io.workers import worker
from kdns.dnsserver.io.workers.link import Link
from kdns.dnsserver.io.workers.messages import Attach, AttachAck, Detach, DetachAck, Miss, Report, ReportNow, framed
from kdns.dnsserver.io.workers.worker import Worker

QUEUED = 20
SENT = 3000


async def test_misses_beyond_the_queue_are_shed_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MISSES", QUEUED)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    got: list[object] = []
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        listening.bind(("127.0.0.1", 0))
        client.connect(listening.getsockname())
        running = asyncio.create_task(Worker(theirs).run())
        socket.send_fds(ours, [framed(Attach(5, 1, 4))], [listening.fileno()])
        for number in range(SENT):
            client.send(packet(f"n{number}.test", number=number) + bytes(900))
            if number % 50 == 49:
                await asyncio.sleep(0.001)
        link = Link(ours, lambda message, _: got.append(message), ended=lambda: None)
        link.send(ReportNow(3))
        await until(lambda: got[-1:] == [Report(3)])
        link.send(Detach(5))
        await until(lambda: got[-1:] == [DetachAck(5)])
        link.close()
        await running
    assert got[0] == AttachAck(5)
    numbers = [int.from_bytes(message.packet[:2], "big") for message in got if isinstance(message, Miss)]
    counts = [each for message in got if isinstance(message, Report) for each in message.listeners]
    shed = sum(each.shed for each in counts)
    assert {each.number for each in counts} == {5}
    assert numbers == sorted(numbers)
    assert shed > SENT // 4
    assert len(numbers) > QUEUED
    assert len(numbers) + shed == SENT
