"""Addresses as one label, such as 10-1-2-3 and fd00--1: names of pods, and of endpoints without a hostname."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kdns.net import IPV4_BYTES, packed, unpacked

_DASHED: Final = re.compile(r"[0-9a-f](?:[0-9a-f-]*[0-9a-f])?\Z")


def dashed(address: bytes) -> str:
    """A label that would begin or end in a dash, such as that of `fd00::`, gets a zero (RFC 952), as in CoreDNS."""
    if len(address) == IPV4_BYTES:
        first, second, third, fourth = address
        return f"{first}-{second}-{third}-{fourth}"
    label = unpacked(address).replace(":", "-")
    return f"{'0' if label.startswith('-') else ''}{label}{'0' if label.endswith('-') else ''}"


def dashed_ipv4(addresses: Sequence[bytes]) -> list[str]:
    """Bulk version of `dashed`."""
    return ("%d-%d-%d-%d " * len(addresses) % tuple(b"".join(addresses))).split()


def undashed(label: str) -> bytes:
    """The packed address of a dashed label, or b"".

    Differs: CoreDNS accepts labels that begin with a dash (`--1` for ::1), which are not host names.
    """
    if not _DASHED.match(label):
        return b""
    text = label.replace("-", ".") if label.count("-") == 3 and "--" not in label else label.replace("-", ":")
    return packed(text)
