"""Netlink, as far as the dataplane needs it: requests and dumps of one socket, and the messages of a group.

Differs: pyroute2 does this too, with an object for each message. A conntrack table has 100,000 flows and a map of
fronts 10,000 elements, and of each a few numbers are wanted; so messages are read in place.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, NamedTuple

ROUTE: Final = 0
NETFILTER: Final = 12

_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_ERROR, _DONE, _OVERRUN = 2, 3, 4
_REQUEST, _ACK, _DUMP = 0x01, 0x04, 0x300
_INTERRUPTED: Final = 0x10
_NESTED: Final = 0x8000
_TYPE: Final = 0x3FFF
_BUFFER_BYTES: Final = 1 << 20
_REPLY_S: Final = 5.0
_ADD_MEMBERSHIP: Final = 1
_SOL_NETLINK: Final = 270


class Message(NamedTuple):
    """One message: its type, the port of who caused it, and what comes after the header."""

    kind: int
    port: int
    body: bytes


class InterruptedDumpError(OSError):
    """What was listed changed meanwhile: the list may lack something."""


def opened(protocol: int, *groups: int, receive_bytes: int = _BUFFER_BYTES) -> socket.socket:
    """A socket that hears of `groups`; OSError where the kernel has no such protocol."""
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.bind((0, 0))
        for group in groups:
            made.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
    except OSError:
        made.close()
        raise
    return made


def messages(buffer: bytes) -> Iterator[Message]:
    """The messages of one packet."""
    at = 0
    while at + _HEADER.size <= len(buffer):
        length, kind, _, _, port = _HEADER.unpack_from(buffer, at)
        if length < _HEADER.size:
            return
        yield Message(kind, port, buffer[at + _HEADER.size : at + length])
        at += _aligned(length)


def attributes(buffer: bytes, at: int = 0) -> dict[int, bytes]:
    """Attributes by type, from `at` on; of several with one type the last."""
    return {kind: buffer[start:end] for kind, start, end in places(buffer, at, len(buffer))}


def places(buffer: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Type, start and end of the value of each attribute between two places."""
    while at + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(buffer, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _TYPE, at + _ATTRIBUTE.size, at + length
        at += _aligned(length)


def attribute(kind: int, value: bytes, *, nested: bool = False) -> bytes:
    """One attribute."""
    header = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind | (_NESTED if nested else 0))
    return header + value + bytes(_aligned(len(value)) - len(value))


class Requests:
    """Questions to the kernel, one after the other. Blocks: for threads other than the event loop's."""

    def __init__(self, protocol: int) -> None:
        self._socket = opened(protocol)
        self._socket.settimeout(_REPLY_S)
        self._numbers = count(1)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def dump(self, kind: int, body: bytes, found: Callable[[bytes], None]) -> None:
        """Hand over what follows the header of every message that the kernel answers with.

        OSError where it refuses, InterruptedDumpError at the end of a list that may lack something.
        """
        number = self._send(kind, body, _DUMP)
        is_interrupted = False
        while True:
            buffer = self._socket.recv(_BUFFER_BYTES)
            at = 0
            while at + _HEADER.size <= len(buffer):
                length, what, flags, answered, _ = _HEADER.unpack_from(buffer, at)
                if answered == number:
                    is_interrupted |= bool(flags & _INTERRUPTED)
                    if what == _DONE:
                        if is_interrupted:
                            raise InterruptedDumpError(errno.EINTR, "the list changed while it was read")
                        return
                    if what == _ERROR:
                        _raise_refusal(buffer, at + _HEADER.size)
                        return
                    found(buffer[at + _HEADER.size : at + length])
                at += _aligned(length)

    def do(self, kind: int, body: bytes) -> None:
        """Have one thing done; OSError where the kernel refuses."""
        number = self._send(kind, body, _ACK)
        while True:
            buffer = self._socket.recv(_BUFFER_BYTES)
            _, what, _, answered, _ = _HEADER.unpack_from(buffer)
            if answered == number and what == _ERROR:
                _raise_refusal(buffer, _HEADER.size)
                return

    def _send(self, kind: int, body: bytes, flags: int) -> int:
        number = next(self._numbers)
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, number, 0) + body)
        return number


def _raise_refusal(buffer: bytes, at: int) -> None:
    (code,) = struct.unpack_from("=i", buffer, at)
    if code:
        raise OSError(-code, os.strerror(-code))


def _aligned(length: int) -> int:
    return (length + 3) & ~3
