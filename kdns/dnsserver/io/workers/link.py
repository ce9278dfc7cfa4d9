"""One end of the pair of sockets between the server and a worker: messages in order, and nothing that waits."""

from __future__ import annotations

import array
import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kdns.dnsserver.io.workers.messages import BATCH_BYTES, MESSAGE_BYTES, Message, framed, messages

QUEUE_BYTES: Final = 4 << 20
"""Messages that may wait until the other side has read earlier ones."""
BUFFER_BYTES: Final = 1 << 20
BURST: Final = 4
"""The most batches that are read before other events have their turn."""
_NO_FD: Final = -1
_INT_BYTES: Final = array.array("i").itemsize


class Link:
    """Sends and receives messages; use it from one event loop.

    `receive` gets each message with the descriptor that came with it, -1 if none did. `received` is called after each
    burst of messages, `drained` when nothing waits to be sent any more, and `ended` once, when the other side is gone.
    """

    def __init__(
        self,
        sock: socket.socket,
        receive: Callable[[Any, int], None],
        *,
        ended: Callable[[], None],
        received: Callable[[], None] = lambda: None,
        drained: Callable[[], None] = lambda: None,
    ) -> None:
        sock.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self.is_open = True
        self._socket = sock
        self._receive, self._ended, self._received, self._drained = receive, ended, received, drained
        self._queue: deque[tuple[bytes, int]] = deque()
        self._queue_bytes = 0
        self._is_blocked = self._is_scheduled = False
        self._buffer = bytearray(MESSAGE_BYTES)
        self._ancillary_bytes = socket.CMSG_LEN(_INT_BYTES)  # not on Windows
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._read)

    @property
    def is_full(self) -> bool:
        """Whether as much waits as may wait: further messages must not be sent unless they have to."""
        return self._queue_bytes >= QUEUE_BYTES

    @property
    def is_blocked(self) -> bool:
        """Whether messages wait until the other side has read earlier ones."""
        return self._is_blocked

    def send(self, message: Message, fd: int = _NO_FD) -> None:
        """Queues a message, which is sent at the latest in the next iteration of the loop."""
        self.send_frame(framed(message), fd)

    def send_frame(self, frame: bytes, fd: int = _NO_FD) -> None:
        """Queues an encoded message, with a descriptor that stays open until it is sent."""
        if not self.is_open:
            return
        self._queue.append((frame, fd))
        self._queue_bytes += len(frame)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush_later)

    def flush(self) -> None:
        """Sends what the other side has room for."""
        while self._queue and self.is_open and not self._is_blocked:
            frames, fd = self._next_batch()
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd != _NO_FD else []
            try:
                self._socket.sendmsg([b"".join(frames)], rights)
            except (BlockingIOError, InterruptedError):
                self._is_blocked = True
                self._loop.add_writer(self._socket, self._unblock)
                return
            except OSError:  # the other side is gone, which is read behind its last messages
                self._clear()
                return
            for frame in frames:
                self._queue.popleft()
                self._queue_bytes -= len(frame)

    def close(self) -> None:
        """Handles the messages that the other side has sent, then closes the socket; `ended` is not called."""
        self._ended = lambda: None
        while self._read_batch():
            pass
        self._received()
        self._shut()

    def _next_batch(self) -> tuple[list[bytes], int]:
        """Returns the frames that are sent together; a frame with a descriptor is sent alone."""
        frames: list[bytes] = []
        size_bytes = 0
        for frame, fd in self._queue:
            size_bytes += len(frame)
            if frames and (fd != _NO_FD or size_bytes > BATCH_BYTES):
                break
            frames.append(frame)
            if fd != _NO_FD:
                return frames, fd
        return frames, _NO_FD

    def _flush_later(self) -> None:
        self._is_scheduled = False
        self.flush()

    def _unblock(self) -> None:
        self._is_blocked = False
        self._loop.remove_writer(self._socket)
        self.flush()
        if not self._queue:
            self._drained()

    def _read(self) -> None:
        for _ in range(BURST):
            if not self._read_batch():
                break
        self._received()

    def _read_batch(self) -> bool:
        """Receives a batch of messages; returns whether there was one."""
        if not self.is_open:
            return False
        try:
            size_bytes, ancillary, _, _ = self._socket.recvmsg_into([self._buffer], self._ancillary_bytes)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            size_bytes, ancillary = 0, []
        if not size_bytes:
            self._shut()
            self._ended()
            return False
        fd = _NO_FD
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                (fd,) = array.array("i", data[:_INT_BYTES])
        with memoryview(self._buffer)[:size_bytes] as batch:
            for message in messages(batch):
                self._receive(message, fd)
        return True

    def _shut(self) -> None:
        if self.is_open:
            self.is_open = False
            self._clear()
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _clear(self) -> None:
        self._queue.clear()
        self._queue_bytes = 0
