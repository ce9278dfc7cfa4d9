"""Addresses as one label: 10-1-2-3 and fd00--1, the names of pods and of endpoints without a hostname."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kdns.net import IPV4_BYTES, packed, unpacked

_DASHED: Final = re.compile(r"[0-9a-f](?:[0-9a-f-]*[0-9a-f])?\Z")


def dashed(address: bytes) -> str:
    """Returns the address as one label, which never has a dash at an end.

    `fd00::` would end in a dash, which host names must not (RFC 952): it gets a zero, as in CoreDNS.
    """
    if len(address) == IPV4_BYTES:
        first, second, third, fourth = address
        return f"{first}-{second}-{third}-{fourth}"
    label = unpacked(address).replace(":", "-")
    return f"{'0' if label.startswith('-') else ''}{label}{'0' if label.endswith('-') else ''}"


def dashed_ipv4(addresses: Sequence[bytes]) -> list[str]:
    """Bulk version of `dashed`."""
    return ("%d-%d-%d-%d " * len(addresses) % tuple(b"".join(addresses))).split()


def undashed(label: str) -> bytes:
    """Returns the packed address of a dashed label, or b"".

    Differs: CoreDNS accepts labels that begin with a dash (`--1` for ::1), which are not host names.
    """
    if not _DASHED.match(label):
        return b""
    text = label.replace("-", ".") if label.count("-") == 3 and "--" not in label else label.replace("-", ":")
    return packed(text)
