"""Kubernetes quantities as exact numbers: `1.5Gi`, `100m`, `2e3` (apimachinery, api/resource)."""

from __future__ import annotations

import re
from fractions import Fraction

_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_SUFFIXES |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)}
_SMALL = {"m": 10**3, "u": 10**6, "n": 10**9}
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([a-zA-Z]{0,2}))")


def quantity(value: object) -> Fraction | None:
    """The number that a quantity is; None for a text that is none."""
    found = _QUANTITY.fullmatch(str(value))
    if not found:
        return None
    number, exponent, suffix = found.groups()
    if exponent:
        return Fraction(f"{number}{exponent}")
    if suffix in _SMALL:
        return Fraction(number) / _SMALL[suffix]
    return Fraction(number) * _SUFFIXES[suffix] if suffix in _SUFFIXES else None
