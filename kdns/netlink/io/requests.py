"""Requests to the kernel over one netlink socket, dumps, and membership in multicast groups."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Final, Self, TypeVar

from kdns.netlink import uapi
from kdns.netlink.protocol import NFGENMSG, NLMSGHDR, Change, Message, error_of, message, messages

_BUFFER_BYTES: Final = 1 << 20
_DATAGRAM_BYTES: Final = 1 << 17
"""More than the kernel puts into a datagram: 32 KiB of a dump."""
_REPLY_S: Final = 5.0
SO_SNDBUFFORCE: Final = 32
_DUMPS: Final = 10
"""Attempts to dump objects that change meanwhile: addresses and rules come with Pods and Services."""
_BATCH_REQUESTS: Final = 256
"""Requests of one send: an answer to each fits into the default buffer of a socket."""
_BATCH_BYTES: Final = 96 * 1024
"""The size of one send that fits into the default buffer; a single larger request is sent alone."""

T = TypeVar("T")


class InterruptedDumpError(OSError):
    """The objects changed while they were dumped, each time."""


def netlink_socket(protocol: int, *groups: int, receive_bytes: int = _BUFFER_BYTES) -> socket.socket:
    """Opens a socket that is a member of these multicast groups; OSError if the kernel does not have the protocol."""
    if sys.platform != "linux":
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.bind((0, 0))
        for group in groups:
            made.setsockopt(uapi.SOL_NETLINK, uapi.NETLINK_ADD_MEMBERSHIP, group)
    except OSError:
        made.close()
        raise
    return made


class Requests:
    """Sends requests to the kernel, one after the other. Blocks: for threads other than the event loop's."""

    def __init__(self, protocol: int) -> None:
        self._socket = netlink_socket(protocol)
        self._socket.settimeout(_REPLY_S)
        self._socket.setsockopt(uapi.SOL_NETLINK, uapi.NETLINK_CAP_ACK, 1)
        self._sequence = count(1)
        self._buffer = memoryview(bytearray(_DATAGRAM_BYTES))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    @property
    def port(self) -> int:
        """The netlink port of the socket, by which the kernel names it as an author."""
        return int(self._socket.getsockname()[0])

    def dump(self, kind: int, body: bytes, decode: Callable[[bytes], T | None]) -> list[T]:
        """The objects for which `decode` returns something: a table may have a million, of which few count.

        OSError if the kernel refuses, InterruptedDumpError if the objects change during each of several dumps.
        """
        for _ in range(_DUMPS):
            objects: list[T] = []
            error = self._dump(kind, body, decode, objects)
            if error != errno.EINTR:
                _raise(error)
                return objects
        raise InterruptedDumpError(errno.EINTR, "the list changes all the time")

    def _dump(self, kind: int, body: bytes, decode: Callable[[bytes], T | None], objects: list[T]) -> int:
        """Fills `objects`; returns the error, EINTR for a dump that may be incomplete."""
        sequence = self._send(kind, body, uapi.NLM_F_DUMP)
        is_interrupted = False
        for answer in self._answers(sequence, sequence):
            is_interrupted |= bool(answer.flags & uapi.NLM_F_DUMP_INTR)
            if answer.kind in {uapi.NLMSG_DONE, uapi.NLMSG_ERROR}:
                return errno.EINTR if is_interrupted else error_of(answer.body)
            if (decoded := decode(answer.body)) is not None:
                objects.append(decoded)
        return 0

    def do(self, kind: int, body: bytes, flags: int = 0) -> None:
        """Sends one request and waits for its acknowledgement; OSError if the kernel refuses."""
        self._answer(kind, body, flags)

    def ask(self, kind: int, body: bytes) -> bytes:
        """The payload of the answer; OSError if the kernel refuses, or does not answer."""
        answer = self._answer(kind, body)
        if not answer:
            _raise(errno.ENODATA)
        return answer

    def _answer(self, kind: int, body: bytes, flags: int = 0) -> bytes:
        sequence, answer = self._send(kind, body, uapi.NLM_F_ACK | flags), b""
        for received in self._answers(sequence, sequence):
            if received.kind == uapi.NLMSG_ERROR:
                _raise(error_of(received.body))
                break
            answer = answer or received.body
        return answer

    def do_all(self, changes: Sequence[Change]) -> dict[int, int]:
        """Carries out requests in their order, each for itself; returns the errors of refused ones by index.

        The kernel reads many of them from one send, and answers those that it refuses and the last one.
        Raises PermissionError if this process may not change anything: the kernel reads no further then.
        """
        refused: dict[int, int] = {}
        start = 0
        while start < len(changes):
            first = next(self._sequence)
            parts: list[bytes] = []
            size = 0
            for kind, flags, body in changes[start : start + _BATCH_REQUESTS]:
                if parts and size + len(body) > _BATCH_BYTES:
                    break
                size += NLMSGHDR.size + len(body)
                parts.append(message(kind, uapi.NLM_F_REQUEST | flags, first + len(parts), body))
            last = first + len(parts) - 1
            kind, flags, body = changes[start + len(parts) - 1]
            parts[-1] = message(kind, uapi.NLM_F_REQUEST | uapi.NLM_F_ACK | flags, last, body)
            self._sequence = count(last + 1)
            self._socket.send(b"".join(parts))
            for sequence, error in self._errors(first, last, last):
                if error == errno.EPERM:
                    _raise(error)
                refused[start + sequence - first] = error
            start += len(parts)
        return refused

    def transact(self, subsystem: int, changes: Iterable[tuple[int, bytes]]) -> None:
        """Carries out requests to one subsystem of netfilter as one transaction; OSError if the kernel refuses."""
        header, first = NFGENMSG.pack(uapi.AF_UNSPEC, 0, socket.htons(subsystem)), next(self._sequence)
        parts = [message(uapi.NFNL_MSG_BATCH_BEGIN, uapi.NLM_F_REQUEST, first, header)]
        for kind, body in changes:
            last = next(self._sequence)
            parts.append(message(kind, uapi.NLM_F_REQUEST | uapi.NLM_F_CREATE, last, body))
        parts[-1] = message(kind, uapi.NLM_F_REQUEST | uapi.NLM_F_CREATE | uapi.NLM_F_ACK, last, body)
        end = next(self._sequence)
        parts.append(message(uapi.NFNL_MSG_BATCH_END, uapi.NLM_F_REQUEST, end, header))
        batch = b"".join(parts)
        del parts
        room = max(len(batch) + 4096, _BUFFER_BYTES)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, room)
        except PermissionError:  # in a user namespace: net.core.wmem_max is the limit
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        self._socket.send(batch)
        errors = [error for _, error in self._errors(first, end, last)]
        _raise(errors[0] if errors else 0)

    def _errors(self, first: int, end: int, last: int) -> Iterator[tuple[int, int]]:
        """Sequence number and error of each failed request from first to end, until `last` is answered."""
        for received in self._answers(first, end):
            if received.kind == uapi.NLMSG_ERROR and (error := error_of(received.body)):
                yield received.sequence, error
            if received.sequence == last:
                return

    def _answers(self, first: int, last: int) -> Iterator[Message]:
        """The answers to the requests first…last; the caller knows which is the last of them."""
        while True:
            # One buffer serves all datagrams: to allocate one for each takes longer than everything else.
            for received in messages(bytes(self._buffer[: self._socket.recv_into(self._buffer)])):
                if first <= received.sequence <= last:
                    yield received

    def _send(self, kind: int, body: bytes, flags: int) -> int:
        sequence = next(self._sequence)
        self._socket.send(message(kind, uapi.NLM_F_REQUEST | flags, sequence, body))
        return sequence


def _raise(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))
