"""A snapshot: the objects of a watched cluster in a file, for a server that starts while no API answers.

The first line is a header, the lines after it are objects in the API's form, and the last line is the SHA-256 of the
others. The header has the number of objects of each kind, in the order of the objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgspec

from kdns.cluster.objects import Object
from kdns.cluster.source import Scope, Source
from kdns.cluster.watch import RESOURCES

FORMAT: Final = "kdns snapshot 1"
BYTES_MAX: Final = 512 * 1024 * 1024
"""The largest file: 20 times that of 150,000 endpoints."""

_TRAILER_BYTES: Final = len(sha256().hexdigest()) + 1
_RESOURCES: Final = {resource.plural: resource for resource in RESOURCES.values()}


class Header(msgspec.Struct, frozen=True):
    """`of` is the identity of the cluster; times are in Unix seconds."""

    format: str
    of: str
    saved_s: float
    changed_s: float
    objects: dict[str, int]


@dataclass(slots=True)
class SnapshotStats:
    """When a cluster's file was saved, in Unix seconds or 0, and how many writes failed."""

    saved_s: float = 0.0
    failures: int = 0


class SnapshotError(Exception):
    """The snapshot cannot be used."""


def identity(source: Source, scope: Scope) -> str:
    return sha256(repr((source, scope)).encode()).hexdigest()


def read(content: bytes, of: str, now_s: float, max_age_s: float) -> tuple[Header, Iterator[Object]]:
    """Raises SnapshotError, also while the objects are iterated over."""
    end = len(content) - _TRAILER_BYTES
    if end < 0 or trailer(sha256(memoryview(content)[:end]).hexdigest()) != content[end:]:
        raise SnapshotError("it is damaged: its SHA-256 is another")
    start = content.find(b"\n") + 1
    try:
        header = msgspec.json.decode(content[:start], type=Header)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"its header does not decode: {error}") from error
    if header.format != FORMAT:
        raise SnapshotError(f"expected the format {FORMAT!r}, got {header.format!r}")
    if header.of != of:
        raise SnapshotError("it is of another API server, or has other kinds or selectors")
    if (age_s := now_s - header.saved_s) > max_age_s:
        raise SnapshotError(f"it is too old: saved {age_s:.0f} s ago, expected at most {max_age_s:.0f} s")
    return header, _objects(header, content, start)


def trailer(digest: str) -> bytes:
    return digest.encode() + b"\n"


def _objects(header: Header, content: bytes, start: int) -> Iterator[Object]:
    for plural, count in header.objects.items():
        if plural not in _RESOURCES:
            raise SnapshotError(f"expected kinds such as services, got {plural!r}")
        decode = _RESOURCES[plural].decode
        for _ in range(count):
            end = content.find(b"\n", start)
            try:
                yield decode(msgspec.Raw(content[start:end]))
            except msgspec.DecodeError as error:
                raise SnapshotError(f"one of its {plural} does not decode: {error}") from error
            start = end + 1
