"""A fair sample of the queries over UDP: who asks for what.

Each query is as likely to be in it as any other, whatever came before or after (reservoir sampling, Vitter 1985,
algorithm R). A sample that begins with what comes next would prefer what comes after a pause.
"""

from __future__ import annotations

import random
from typing import Final, TypeAlias

MOST: Final = 4096
"""The queries of a sample: with fewer, all are in it."""

Sampled: TypeAlias = tuple[bytes, str, bytes]
"""A query's packet, its client's address, and the beginning of its response with the code, b"" if none was sent."""

_HEAD_BYTES: Final = 4


class Sampling:
    """The queries since the last `take`: `seen` of them, at most `most` in the sample. Nothing is sampled if it is 0.

    Compiled code draws from the answers that it gives, with the same counts.
    """

    __slots__ = ("_sample", "most", "seen")

    def __init__(self) -> None:
        self.most = self.seen = 0
        self._sample: list[Sampled] = []

    def look(self, packet: bytes, client: str, wire: bytes) -> None:
        """Counts a query with its response, and draws it or not; called for each query unless `most` is 0."""
        self.seen += 1
        if self.seen <= self.most or random.random() * self.seen < self.most:
            self.keep(packet, client, wire)

    def keep(self, packet: bytes, client: str, wire: bytes) -> None:
        sampled = packet, client, wire[:_HEAD_BYTES]
        if len(self._sample) < self.most:
            self._sample.append(sampled)
        elif self._sample:
            self._sample[random.randrange(len(self._sample))] = sampled

    def take(self) -> tuple[int, list[Sampled]]:
        """Returns how many queries there were, and the sample; the next one begins."""
        seen, sample = self.seen, self._sample
        self.seen, self._sample = 0, []
        return seen, sample
