"""A collector of dnstap messages on a socket of this machine, and what is in them."""

import asyncio
from asyncio import StreamReader, StreamWriter
from dataclasses import dataclass, field
from typing import TypeAlias

from kdns.dnsserver.io.frame_streams import ACCEPT, FINISH, READY, START, STOP, control_frame, control_kind

Fields: TypeAlias = dict[int, int | bytes]


@dataclass
class FrameReader:
    """Takes frames of one connection after another; `received` is set with each, `ended` when a writer said STOP."""

    frames: list[bytes] = field(default_factory=list)
    connections: int = 0
    received: asyncio.Condition = field(default_factory=asyncio.Condition)
    is_ended: bool = False

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        try:
            await _control(reader, READY)
            writer.write(control_frame(ACCEPT))
            await _control(reader, START)
            while size_bytes := int.from_bytes(await reader.readexactly(4), "big"):
                frame = await reader.readexactly(size_bytes)
                async with self.received:
                    self.frames.append(frame)
                    self.received.notify_all()
            control = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            assert control_kind(control, STOP) == STOP
            writer.write(control_frame(FINISH))
            self.is_ended = True
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def wait_for(self, count: int) -> list[bytes]:
        """The frames, when there are so many."""
        async with asyncio.timeout(60), self.received:
            await self.received.wait_for(lambda: len(self.frames) >= count)
        return self.frames


async def _control(reader: StreamReader, kind: int) -> None:
    assert await reader.readexactly(4) == bytes(4)
    content = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    assert control_kind(content, kind) == kind


def decoded(data: bytes) -> Fields:
    """The fields of a protobuf message by number: numbers, and bytes."""
    fields: Fields = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire_type = key >> 3, key & 7
        assert number not in fields
        if wire_type == 0:
            fields[number], position = _varint(data, position)
        elif wire_type == 5:
            fields[number] = int.from_bytes(data[position : position + 4], "little")
            position += 4
        else:
            assert wire_type == 2
            size_bytes, position = _varint(data, position)
            fields[number] = data[position : position + size_bytes]
            position += size_bytes
    return fields


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = data[position]
        position += 1
        value |= (octet & 127) << shift
        shift += 7
        if octet < 128:
            return value, position


def message_of(frame: bytes) -> Fields:
    """The fields of the message in a frame."""
    inner = decoded(frame)[14]
    assert isinstance(inner, bytes)
    return decoded(inner)
