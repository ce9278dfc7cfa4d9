"""A uniform sample of the queries over UDP (reservoir sampling, Vitter 1985, algorithm R).

Every query is equally likely to be in it. Taking the next few queries would prefer those after a pause.
"""

from __future__ import annotations

import random
from typing import Final, TypeAlias

MOST: Final = 4096
"""The largest sample."""

Sampled: TypeAlias = tuple[bytes, str, bytes]
"""A query's packet, its client's address, and the first bytes of its response with the rcode, b"" for none."""

_HEAD_BYTES: Final = 4


class Sampling:
    """Of the queries since the last `take`, `seen` in all, at most `most` are in the sample; 0 turns it off.

    The C code does the same for the hits that it answers.
    """

    __slots__ = ("_sample", "most", "seen")

    def __init__(self) -> None:
        self.most = self.seen = 0
        self._sample: list[Sampled] = []

    def look(self, packet: bytes, client: str, wire: bytes) -> None:
        """Call for each query unless `most` is 0."""
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
        """The number of queries, and the sample; starts the next one."""
        seen, sample = self.seen, self._sample
        self.seen, self._sample = 0, []
        return seen, sample
