"""Flows of the kernel's connection tracking, as values."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

SocketAddress: TypeAlias = tuple[str, int]
"""An address in canonical form, and a port."""


class Flow(NamedTuple):
    """A UDP flow: the destination of the client's packets, and the source of the answers. `handle` identifies it."""

    destination: SocketAddress
    answers_from: SocketAddress
    handle: bytes
