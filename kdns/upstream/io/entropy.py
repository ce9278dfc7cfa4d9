"""Random bytes of the operating system, read in batches because a system call for each query would be costly."""

from __future__ import annotations

import os
from typing import Final

BATCH_BYTES: Final = 4096


class Entropy:
    """Unpredictable bytes: message ids, cases of letters, choices of sockets."""

    __slots__ = ("_batch", "_position")

    def __init__(self) -> None:
        self._batch = b""
        self._position = 0

    def take(self, size: int) -> bytes:
        """Returns so many bytes, at most a batch; none is returned twice."""
        start = self._position
        end = start + size
        if end > len(self._batch):
            self._batch = os.urandom(BATCH_BYTES)
            start, end = 0, size
        self._position = end
        return self._batch[start:end]
