"""Random datagrams: queries in every spelling and with every kind of OPT, and what hostile clients make of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from struct import pack
from typing import ClassVar, Final

from kdns.dns.names import encode_name, labels_of
from kdns.dns.query import HEADER_BYTES, Query, read_query

MAX_LEARNT: Final = 300
"""The most packets that are kept because their answers were kept: they are sent again, and changed."""

_CLUSTER_NAMES: Final = (
    "web.a.svc.cluster.local.",
    "db.a.svc.cluster.local.",
    "_http._tcp.db.a.svc.cluster.local.",
    "web.a.svc.cluster.local.a.svc.cluster.local.",
    "example.org.",
)
_TYPES: Final = (1, 28, 33, 12, 16, 255, 41, 0x4142)
_FLAGS: Final = (0x0100, 0x0100, 0x0000, 0x0120, 0x0110, 0x0140, 0x8180, 0x2000, 0x2800, 0x4142)
_PAYLOADS: Final = (0, 511, 512, 1232, 4096, 65535)
_CODES: Final = (8, 10, 10, 11, 12, 15, 0x10A, 0xFFFF)
_LENGTHS: Final = (0, 1, 62, 63, 64, 127, 128, 191, 192, 254, 255)
_COUNTS: Final = (0, 0, 1, 1, 2, 255, 256, 65535)
_SIZES: Final = (0, 1, 2, 9, 10, 11, 12, 13, 14, 17, 40, 300, 4095, 4096, 4097, 9000)


class Packets:
    """A source of random datagrams; `sorts` counts them by the way they were made."""

    def __init__(self, chance: random.Random, sorts: Counter[str]) -> None:
        self._chance = chance
        self._sorts = sorts
        self._learnt: list[bytes] = []
        labels = [self._label() for _ in range(6)]
        names = [b"".join(chance.choices(labels, k=chance.randrange(5))) + b"\0" for _ in range(20)]
        self._names = names + [encode_name(labels_of(name)) for name in _CLUSTER_NAMES]

    def learn(self, packet: bytes) -> None:
        """Keeps a packet that has an answer in the table."""
        if len(self._learnt) < MAX_LEARNT:
            self._learnt.append(packet)
        else:
            self._learnt[self._chance.randrange(MAX_LEARNT)] = packet

    def next(self) -> bytes:
        """Returns a datagram."""
        chance = self._chance
        make = chance.choice(self._MAKERS)
        self._sorts[make.__name__.strip("_")] += 1
        return make(self)

    def _id(self) -> bytes:
        return self._chance.randbytes(2)

    def _label(self) -> bytes:
        text = bytes(self._chance.choices(b"abzABZ019-_@[`{\0.\xc1\xff", k=self._chance.choice((1, 3, 8, 63))))
        return bytes((len(text),)) + text

    def _spelled(self, name: bytes) -> bytes:
        """Returns the name with letters of both cases; a length that is a letter's code stays below 64."""
        return bytes(
            byte ^ 0x20 if chr(byte).isascii() and chr(byte).isalpha() and self._chance.random() < 0.3 else byte
            for byte in name
        )

    def _header(self, additionals: int) -> bytes:
        return self._id() + pack("!HHHHH", self._chance.choice(_FLAGS), 1, 0, 0, additionals)

    def _question(self) -> bytes:
        chance = self._chance
        return self._spelled(chance.choice(self._names)) + pack(
            "!HH", chance.choice(_TYPES), chance.choice((1, 1, 1, 3))
        )

    def _opt(self, options: bytes) -> bytes:
        chance = self._chance
        extended = chance.choice((0, 0, 0x8000, 0x10000, 0x41424344))
        return pack("!BHHIH", 0, 41, chance.choice(_PAYLOADS), extended, len(options)) + options

    def _options(self) -> bytes:
        chance = self._chance
        sizes = chance.choices((0, 1, 8, 24, 250, 1000), k=chance.choice((1, 1, 2, 3)))
        return b"".join(pack("!HH", chance.choice(_CODES), size) + chance.randbytes(size) for size in sizes)

    def _plain(self) -> bytes:
        return self._header(0) + self._question()

    def _with_opt(self) -> bytes:
        return self._header(1) + self._question() + self._opt(b"")

    def _with_options(self) -> bytes:
        return self._header(1) + self._question() + self._opt(self._options())

    def _with_wrong_options(self) -> bytes:
        """Returns a query whose OPT, or one of its options, says another length than it has."""
        packet = bytearray(self._with_options())
        end = len(packet)
        for at in self._chance.sample(range(end - min(end - HEADER_BYTES, 40), end), k=2):
            packet[at] = self._chance.choice((0, 1, 4, 255, packet[at] + 1 & 255))
        return bytes(packet)

    def _repeated(self) -> bytes:
        """Returns a packet with an answer, with another id, spelling and options."""
        packet = self._any()
        query = read_query(packet)
        if not isinstance(query, Query):
            return self._id() + packet[2:]
        end = query.question_end - 4
        spelled = self._id() + packet[2:HEADER_BYTES] + self._spelled(packet[HEADER_BYTES:end]) + packet[end:]
        if query.edns and query.has_key and self._chance.random() < 0.5:
            options = b"".join(
                pack("!HH", self._chance.choice((10, 11, 12)), size) + bytes(size)
                for size in self._chance.choices((0, 1, 8, 40), k=2)
            )
            return spelled[: end + 13] + pack("!H", len(options)) + options
        return spelled

    def _changed(self) -> bytes:
        """Returns a packet with some bytes changed."""
        packet = bytearray(self._any())
        for _ in range(self._chance.randint(1, 4)):
            if packet:
                at = self._chance.randrange(len(packet))
                packet[at] = self._chance.choice((packet[at] ^ 1 << self._chance.randrange(8), *_LENGTHS))
        return bytes(packet)

    def _with_counts(self) -> bytes:
        """Returns a packet whose header counts other records than it has."""
        packet = bytearray(self._any().ljust(HEADER_BYTES, b"\0"))
        at = self._chance.choice((2, 4, 6, 8, 10))
        packet[at : at + 2] = pack("!H", self._chance.choice(_COUNTS))
        return bytes(packet)

    def _with_wrong_labels(self) -> bytes:
        """Returns a query in which the length of a label is another one, or a pointer."""
        packet = bytearray(self._any().ljust(HEADER_BYTES + 1, b"\0"))
        at, labels = HEADER_BYTES, []
        while at < len(packet):
            labels.append(at)
            at += 1 + packet[at]
        packet[self._chance.choice(labels)] = self._chance.choice(_LENGTHS)
        return bytes(packet)

    def _with_long_name(self) -> bytes:
        """Returns a query for a name of about the largest size, in labels of one size."""
        size = self._chance.choice((1, 2, 7, 30, 62, 63))
        label = bytes((size,)) + b"L" * size
        name = label * (self._chance.randint(245, 275) // len(label))
        return (
            self._header(1) + name + b"\0" + pack("!HH", 1, 1) + self._opt(self._chance.choice((b"", self._options())))
        )

    def _cut(self) -> bytes:
        packet = self._any()
        return packet[: self._chance.randint(0, len(packet))]

    def _grown(self) -> bytes:
        packet = self._any()
        at = self._chance.choice((len(packet), self._chance.randint(0, len(packet))))
        return packet[:at] + self._noise() + packet[at:]

    def _spliced(self) -> bytes:
        one, other = self._any(), self._any()
        return one[: self._chance.randint(0, len(one))] + other[self._chance.randint(0, len(other)) :]

    def _noise(self) -> bytes:
        return self._chance.randbytes(self._chance.choice(_SIZES))

    def _any(self) -> bytes:
        """Returns a packet to send again or to change."""
        if self._learnt and self._chance.random() < 0.8:
            return self._chance.choice(self._learnt)
        return self._chance.choice((self._plain, self._with_opt, self._with_options))()

    _MAKERS: ClassVar[tuple[Callable[[Packets], bytes], ...]] = (
        _plain,
        _with_opt,
        _with_options,
        _with_wrong_options,
        *(_repeated,) * 12,
        _changed,
        _with_counts,
        _with_wrong_labels,
        _with_long_name,
        _cut,
        _grown,
        _spliced,
        _noise,
    )
    """How datagrams are made; half of them are those of clients that are answered."""
