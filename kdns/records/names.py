"""Names that carry addresses: reverse names and dashed addresses."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

_OCTET: Final = re.compile(r"(?:0|[1-9][0-9]{0,2})\Z")
_NIBBLES: Final = frozenset("0123456789abcdef")
_DASHED: Final = re.compile(r"[0-9a-f](?:[0-9a-f-]*[0-9a-f])?\Z")


def labels_of(name: str) -> tuple[str, ...]:
    """The labels of a name in text form, without the root."""
    return tuple(name.rstrip(".").split(".")) if name != "." else ()


def is_below(labels: tuple[str, ...], zone: tuple[str, ...]) -> bool:
    """Whether the name is the zone's or lies below it; both as labels, in lower case."""
    return not zone or labels[-len(zone) :] == zone


def dashed(packed: bytes) -> str:
    """The address as one label: 10-1-2-3 or fd00--1; never with a dash at an end.

    `fd00::` would end in a dash, which host names must not (RFC 952): it gets a zero, as in CoreDNS.
    """
    label = str(ip_address(packed)).replace(".", "-").replace(":", "-")
    return f"{'0' if label.startswith('-') else ''}{label}{'0' if label.endswith('-') else ''}"


def undashed(label: str) -> bytes:
    """The packed address a dashed label stands for, or b"".

    Differs: CoreDNS takes labels that begin with a dash (`--1` for ::1), which are no host names.
    """
    if not _DASHED.match(label):
        return b""
    text = label.replace("-", ".") if label.count("-") == 3 and "--" not in label else label.replace("-", ":")
    try:
        return ip_address(text).packed
    except ValueError:
        return b""


def reversed_address(labels: tuple[str, ...]) -> bytes | None:
    """The address bytes that the labels of a reverse name begin with, None if they are no such name.

    `labels` end in in-addr.arpa or ip6.arpa; fewer than 4 octets or 32 nibbles give fewer bytes or, for an odd
    number of nibbles, None: use `reverse_range` for those (RFC 1035 §3.5, RFC 3596 §2.5).
    """
    bounds = reverse_range(labels)
    return bounds[0] if bounds and bounds[0] == bounds[1] else None


def reverse_range(labels: tuple[str, ...]) -> tuple[bytes, bytes] | None:
    """The first and last address at or below a reverse name, None if the labels are no such name."""
    digits, suffix = labels[:-2][::-1], labels[-2:]
    if suffix == ("in-addr", "arpa"):
        if len(digits) > 4 or not all(_OCTET.match(digit) and int(digit) < 256 for digit in digits):
            return None
        octets = bytes(int(digit) for digit in digits)
        return octets.ljust(4, b"\x00"), octets.ljust(4, b"\xff")
    if suffix == ("ip6", "arpa"):
        if len(digits) > 32 or not all(digit in _NIBBLES for digit in digits):
            return None
        nibbles = "".join(digits)
        return bytes.fromhex(nibbles.ljust(32, "0")), bytes.fromhex(nibbles.ljust(32, "f"))
    return None
