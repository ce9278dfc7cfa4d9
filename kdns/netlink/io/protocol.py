"""The netlink protocol: messages and attributes (RFC 3549), requests and dumps of one socket, multicast groups.

Everything that kdns does over netlink is done here. pyroute2 makes an object of each message; conntrack may have
100,000 flows and a map of fronts 10,000 elements, of each of which kdns needs a few numbers, so these messages are read
in place. With that reader there, pyroute2 is not loaded for the few small lists either.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from kdns.net import Family
from kdns.netlink.uapi import (
    NETLINK_ADD_MEMBERSHIP,
    NETLINK_CAP_ACK,
    NFNL_MSG_BATCH_BEGIN,
    NFNL_MSG_BATCH_END,
    NLA_F_NESTED,
    NLA_TYPE_MASK,
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_DUMP,
    NLM_F_DUMP_INTR,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    SOL_NETLINK,
)

NFGENMSG: Final = struct.Struct("=BBH")
"""The header of every netfilter message: address family, version, resource id."""
ADDRESS_FAMILY: Final[dict[Family, int]] = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}

_NLMSGHDR: Final = struct.Struct("=IHHII")
_NLATTR: Final = struct.Struct("=HH")
_BUFFER_BYTES: Final = 1 << 20
_DATAGRAM_BYTES: Final = 1 << 17
"""More than the kernel puts into a datagram: 32 KiB of a dump."""
_REPLY_S: Final = 5.0
SO_SNDBUFFORCE: Final = 32
_SENT_AT_ONCE: Final = 256
"""Requests of one send: an answer to each fits into the buffer that every socket may have."""
_SENT_BYTES: Final = 96 * 1024
"""What one send may have without a larger buffer, unless it is one request."""

Change: TypeAlias = tuple[int, int, bytes]
"""A request that changes something: its type, its flags beside NLM_F_REQUEST, and its payload."""


class Message(NamedTuple):
    """One message: its type, the port id of its sender, and its payload."""

    kind: int
    port: int
    body: bytes


class InterruptedDumpError(OSError):
    """The objects changed while they were dumped: the dump may lack some."""


def netlink_socket(protocol: int, *groups: int, receive_bytes: int = _BUFFER_BYTES) -> socket.socket:
    """A socket that is a member of these multicast groups; OSError where the kernel has no such protocol."""
    if sys.platform != "linux":
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.bind((0, 0))
        for group in groups:
            made.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
    except OSError:
        made.close()
        raise
    return made


def messages(buffer: bytes) -> Iterator[Message]:
    """The messages of one datagram."""
    at = 0
    while at + _NLMSGHDR.size <= len(buffer):
        length, kind, _, _, port = _NLMSGHDR.unpack_from(buffer, at)
        if length < _NLMSGHDR.size:
            return
        yield Message(kind, port, buffer[at + _NLMSGHDR.size : at + length])
        at += _aligned(length)


def attributes(buffer: bytes, at: int = 0) -> dict[int, bytes]:
    """Attributes by type, from offset `at` on; of several with the same type the last."""
    return {kind: buffer[start:end] for kind, start, end in attribute_spans(buffer, at, len(buffer))}


def attribute_spans(buffer: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Type, start and end of the value of each attribute between two offsets."""
    while at + _NLATTR.size <= end:
        length, kind = _NLATTR.unpack_from(buffer, at)
        if length < _NLATTR.size:
            return
        yield kind & NLA_TYPE_MASK, at + _NLATTR.size, at + length
        at += _aligned(length)


def text_of(value: bytes) -> str:
    """The text of an attribute that ends with a zero byte."""
    return value.rstrip(b"\0").decode(errors="replace")


def attribute(kind: int, value: bytes, *, nested: bool = False) -> bytes:
    """One attribute, encoded."""
    header = _NLATTR.pack(_NLATTR.size + len(value), kind | (NLA_F_NESTED if nested else 0))
    return header + value + bytes(_aligned(len(value)) - len(value))


class Requests:
    """Requests to the kernel, one after the other. Blocks: for threads other than the event loop's."""

    def __init__(self, protocol: int) -> None:
        self._socket = netlink_socket(protocol)
        self._socket.settimeout(_REPLY_S)
        self._sequence = count(1)
        self._buffer = memoryview(bytearray(_DATAGRAM_BYTES))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def dump(self, kind: int, body: bytes, receive: Callable[[bytes], None]) -> None:
        """Call `receive` with the payload of every message of a dump.

        OSError where the kernel refuses, InterruptedDumpError at the end of a dump that may lack something.
        """
        sequence = self._send(kind, body, NLM_F_DUMP)
        is_interrupted = False
        while True:
            buffer = self._receive()
            at = 0
            while at + _NLMSGHDR.size <= len(buffer):
                length, message_kind, flags, reply_to, _ = _NLMSGHDR.unpack_from(buffer, at)
                if reply_to == sequence:
                    is_interrupted |= bool(flags & NLM_F_DUMP_INTR)
                    if message_kind == NLMSG_DONE:
                        if is_interrupted:
                            raise InterruptedDumpError(errno.EINTR, "the list changed while it was read")
                        return
                    if message_kind == NLMSG_ERROR:
                        _raise_error(buffer, at + _NLMSGHDR.size)
                        return
                    receive(buffer[at + _NLMSGHDR.size : at + length])
                at += _aligned(length)

    def do(self, kind: int, body: bytes, flags: int = 0) -> None:
        """Send one request and wait for its acknowledgement; OSError where the kernel refuses."""
        sequence = self._send(kind, body, NLM_F_ACK | flags)
        while True:
            buffer = self._receive()
            _, message_kind, _, reply_to, _ = _NLMSGHDR.unpack_from(buffer)
            if reply_to == sequence and message_kind == NLMSG_ERROR:
                _raise_error(buffer, _NLMSGHDR.size)
                return

    def ask(self, kind: int, body: bytes) -> bytes:
        """The payload of the answer to one request; OSError where the kernel refuses, or answers nothing."""
        sequence = self._send(kind, body, NLM_F_ACK)
        answer = b""
        while True:
            buffer, at = self._receive(), 0
            while at + _NLMSGHDR.size <= len(buffer):
                length, message_kind, _, reply_to, _ = _NLMSGHDR.unpack_from(buffer, at)
                if reply_to == sequence:
                    if message_kind == NLMSG_ERROR:
                        _raise_error(buffer, at + _NLMSGHDR.size)
                        if not answer:
                            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
                        return answer
                    answer = answer or buffer[at + _NLMSGHDR.size : at + length]
                at += _aligned(length)

    def do_all(self, changes: Sequence[Change]) -> dict[int, int]:
        """Carry out requests in their order, each for itself; the errors of those that the kernel refuses, by index.

        The kernel reads many of them from one send, and answers those that it refuses and the last one.
        PermissionError where it refuses since this process may not change anything: it reads no further then.
        """
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        refused: dict[int, int] = {}
        start = 0
        while start < len(changes):
            first = next(self._sequence)
            parts: list[bytes] = []
            size = 0
            for kind, flags, body in changes[start : start + _SENT_AT_ONCE]:
                if parts and size + len(body) > _SENT_BYTES:
                    break
                size += _NLMSGHDR.size + len(body)
                parts.append(_message(kind, NLM_F_REQUEST | flags, first + len(parts), body))
            last = first + len(parts) - 1
            kind, flags, body = changes[start + len(parts) - 1]
            parts[-1] = _message(kind, NLM_F_REQUEST | NLM_F_ACK | flags, last, body)
            self._sequence = count(last + 1)
            self._socket.send(b"".join(parts))
            for sequence, error in self._errors(first, last):
                refused[start + sequence - first] = error
            start += len(parts)
        return refused

    def _errors(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Which of these requests failed, and with which error, until the last one is answered."""
        reply_to = 0
        while reply_to != last:
            buffer, at = self._receive(), 0
            while at + _NLMSGHDR.size <= len(buffer):
                length, message_kind, _, reply_to, _ = _NLMSGHDR.unpack_from(buffer, at)
                if first <= reply_to <= last and message_kind == NLMSG_ERROR:
                    error = _error(buffer, at + _NLMSGHDR.size)
                    if error == errno.EPERM:
                        raise PermissionError(error, os.strerror(error))
                    if error:
                        yield reply_to, error
                at += _aligned(length)

    def transact(self, subsystem: int, changes: Iterable[tuple[int, bytes]]) -> None:
        """Carry out requests to one subsystem of netfilter as one transaction; OSError where the kernel refuses."""
        header, first = NFGENMSG.pack(socket.AF_UNSPEC, 0, socket.htons(subsystem)), next(self._sequence)
        parts = [_message(NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, first, header)]
        for kind, body in changes:
            last = next(self._sequence)
            parts.append(_message(kind, NLM_F_REQUEST | NLM_F_CREATE, last, body))
        parts[-1] = _message(kind, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK, last, body)
        parts.append(_message(NFNL_MSG_BATCH_END, NLM_F_REQUEST, next(self._sequence), header))
        batch = b"".join(parts)
        del parts
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        room = max(len(batch) + 4096, _BUFFER_BYTES)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, room)
        except PermissionError:  # in a user namespace: as much as net.core.wmem_max lets every socket have
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        self._socket.send(batch)
        error, reply_to = 0, 0
        while reply_to != last:
            buffer, at = self._receive(), 0
            while at + _NLMSGHDR.size <= len(buffer):
                length, message_kind, _, reply_to, _ = _NLMSGHDR.unpack_from(buffer, at)
                if first <= reply_to and message_kind == NLMSG_ERROR:
                    error = error or _error(buffer, at + _NLMSGHDR.size)
                at += _aligned(length)
        if error:
            raise OSError(error, os.strerror(error))

    def _receive(self) -> bytes:
        """The next datagram. One buffer serves all of them: to make one for each takes longer than the rest."""
        return bytes(self._buffer[: self._socket.recv_into(self._buffer)])

    def _send(self, kind: int, body: bytes, flags: int) -> int:
        sequence = next(self._sequence)
        self._socket.send(_message(kind, NLM_F_REQUEST | flags, sequence, body))
        return sequence


@contextmanager
def requests(protocol: int) -> Iterator[Requests]:
    """Requests on a socket that is closed at the end."""
    made = Requests(protocol)
    try:
        yield made
    finally:
        made.close()


def _message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """A message whose body is aligned, as those of attributes are."""
    return _NLMSGHDR.pack(_NLMSGHDR.size + len(body), kind, flags, sequence, 0) + body


def _raise_error(buffer: bytes, at: int) -> None:
    """Raise the error of an NLMSG_ERROR message."""
    if code := _error(buffer, at):
        raise OSError(code, os.strerror(code))


def _error(buffer: bytes, at: int) -> int:
    """The error of an NLMSG_ERROR message, 0 for an acknowledgement."""
    (code,) = struct.unpack_from("=i", buffer, at)
    return -int(code)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
