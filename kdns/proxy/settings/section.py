"""Sections of the settings: the fields of one mode, or of several, with the flags that set them and their validation.

A section is a frozen dataclass whose fields have defaults. Fields are the API's in snake case; a duration's name ends
in _s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeVar

from kdns.durations import format_duration
from kdns.net import parse_network

T = TypeVar("T")

DEFAULT_MASQUERADE_BIT: Final = 14
DEFAULT_MARK: Final = 1 << DEFAULT_MASQUERADE_BIT
NOT_NEGATIVE: Final = "must be greater than or equal to 0"
POSITIVE: Final = "must be greater than 0"
CIDR: Final = "must be a valid CIDR"
_UPPER: Final = {"ip": "IP", "ips": "IPs", "cidr": "CIDR", "cidrs": "CIDRs", "arp": "ARP", "dsr": "DSR"}
_BITS: Final = range(32)


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in one field; `field` is its path in the document, "" for the document itself.

    `is_ignored`: the settings are valid without it.
    """

    field: str
    reason: str
    is_ignored: bool = False

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of kube-proxy's. `path` is that of its field in the settings, "" for flags without a field.

    `kind` is a key of flags.KINDS. `is_of_mode`: it sets the field of this name in a section of the mode in use, where
    that has one without a flag of its own. `is_of_plan`: it is an option of `kdns render` and `kdns trace` too.
    """

    name: str
    kind: str
    path: str
    help: str
    is_of_mode: bool = False
    is_of_plan: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Fields at `PATH` of the document; those of path "" are fields of the document itself."""

    PATH: ClassVar[str] = ""
    FLAGS: ClassVar[tuple[Flag, ...]] = ()

    def problems(self, *, is_used: bool) -> Iterator[Problem]:
        """Yields the mistakes in the section's fields; `is_used`: the mode in use reads them."""
        del is_used
        yield from ()


def pointer(default: T) -> T:
    """Returns a field whose zero value does not mean the default."""
    value: T = field(default=default, metadata={"pointer": True})
    return value


@dataclass(frozen=True, slots=True)
class Periods(Section):
    """A section with the periods of its mode's syncs."""

    sync_period_s: float = 30.0
    min_sync_period_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Masquerading(Periods):
    """A section that says which packets are masqueraded, and by which bit of their mark."""

    masquerade_bit: int = pointer(DEFAULT_MASQUERADE_BIT)
    masquerade_all: bool = False

    @property
    def mark(self) -> int:
        return 1 << self.masquerade_bit

    def bit_problems(self) -> Iterator[Problem]:
        if self.masquerade_bit not in _BITS:
            yield invalid(f"{self.PATH}.masqueradeBit", self.masquerade_bit, "must be within the range [0, 31]")


@dataclass(frozen=True, slots=True)
class Seconds:
    """A duration as an invalid value, which is shown without quotes."""

    seconds: float

    def __str__(self) -> str:
        return format_duration(self.seconds)


def invalid(field: str, value: object, reason: str) -> Problem:
    match value:
        case str():
            shown = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case tuple():
            shown = "[" + ",".join(f'"{item}"' for item in value) + "]"
        case _:
            shown = str(value)
    return Problem(field, f"Invalid value: {shown}: {reason}")


def negative(path: str, part: object, *names: str) -> Iterator[Problem]:
    """Yields those of the fields that are below zero."""
    for name in names:
        value = getattr(part, name)
        if value < 0:
            shown = Seconds(value) if name.endswith("_s") else value
            yield invalid(f"{path}.{api_name(name)}", shown, NOT_NEGATIVE)


def is_cidr(text: str) -> bool:
    """Returns whether it is an address with a prefix length; a netmask is none."""
    return bool(re.fullmatch(r"[0-9a-fA-F:.]+/[0-9]{1,3}", text)) and parse_network(text) is not None


def api_name(name: str) -> str:
    """Returns the API's spelling of a field: cluster_cidr is clusterCIDR, sync_period_s is syncPeriod."""
    first, *words = name.removesuffix("_s").split("_")
    return first + "".join(_UPPER.get(word, word.capitalize()) for word in words)
