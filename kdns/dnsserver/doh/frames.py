"""Size limits of HTTP/2 frames (RFC 9113 §4.1): h2 keeps a frame or a field block until it is complete."""

from __future__ import annotations

from typing import Final

from kdns.dnsserver.doh.codec import HttpError

MAX_FIELD_BYTES: Final = 16 * 1024
"""All fields of a request, encoded or as RFC 9113 §6.5.2 counts them.

They are decoded in one go, which takes a few milliseconds for as many.
"""
MAX_SETTINGS: Final = 64
"""Settings in one frame; there are fewer than ten."""

_PREFACE_BYTES: Final = 24
_HEAD_BYTES: Final = 9
_SETTING_BYTES: Final = 6
_HEADERS: Final = 1
_SETTINGS: Final = 4
_CONTINUATION: Final = 9
_END_HEADERS: Final = 4


class FrameBounds:
    """Checks the frames of a client, from its preface on."""

    def __init__(self) -> None:
        self._head = b""
        self._size_bytes = self._left_bytes = _PREFACE_BYTES
        self._block_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of the incomplete frame or field block; a field block's frames are counted from their first byte."""
        return max(self._block_bytes, self._size_bytes - self._left_bytes)

    def receive(self, data: bytes) -> None:
        """Checks received bytes; HttpError for a frame or field block that is too large."""
        position = 0
        while position < len(data):
            step = min(self._left_bytes, len(data) - position)
            position, self._left_bytes = position + step, self._left_bytes - step
            if self._left_bytes:
                return
            self._size_bytes = 0
            missing = _HEAD_BYTES - len(self._head)
            self._head += data[position : position + missing]
            position += missing
            if len(self._head) == _HEAD_BYTES:
                self._begin(self._head)
                self._head = b""

    def _begin(self, head: bytes) -> None:
        size_bytes, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if kind == _SETTINGS and size_bytes > MAX_SETTINGS * _SETTING_BYTES:
            raise HttpError("too many settings")
        if kind in {_HEADERS, _CONTINUATION}:
            block_bytes = self._block_bytes + size_bytes
            if block_bytes > MAX_FIELD_BYTES:
                raise HttpError("too many fields")
            self._block_bytes = 0 if flags & _END_HEADERS else block_bytes
        self._size_bytes = self._left_bytes = size_bytes
