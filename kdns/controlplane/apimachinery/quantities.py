"""Kubernetes quantities as exact numbers: `1.5Gi`, `100m`, `2e3` (apimachinery, api/resource)."""

from __future__ import annotations

import math
import re
from fractions import Fraction

_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_SUFFIXES |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)}
_NANO, _BINARY = 10**9, 1024
_SMALL = {"m": 10**3, "u": 10**6, "n": 10**9}
_MAX_CHARS = 256
"""Differs: kube-apiserver reads longer ones, and caps them at 2^63 - 1."""
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([a-zA-Z]{0,2}))")


def quantity(value: object) -> Fraction | None:
    """None if the text is not a quantity."""
    text = str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if not match:
        return None
    number, exponent, suffix = match.groups()
    if exponent:
        return Fraction(f"{number}{exponent}")
    if suffix in _SMALL:
        return Fraction(number) / _SMALL[suffix]
    return Fraction(number) * _SUFFIXES[suffix] if suffix in _SUFFIXES else None


def canonical(value: object) -> str:
    """Kubernetes' canonical form, the largest suffix without a fraction: `1000m` is 1, `0.5` is 500m.

    Text that is not a quantity is returned unchanged.
    """
    number = quantity(value)
    if number is None:
        return str(value)
    if str(value).endswith("i") and abs(number) >= _BINARY:
        return _scaled(_ceiling(number), _BINARY, ["", *(f"{letter}i" for letter in "KMGTPE")])
    if re.search(r"[eE][+-]?[0-9]", str(value)):
        return _scaled(_ceiling(number * _NANO), 1000, [f"e{power}" if power else "" for power in range(-9, 19, 3)])
    return _scaled(_ceiling(number * _NANO), 1000, ["n", "u", "m", "", *"kMGTPE"])


def _ceiling(number: Fraction) -> int:
    """Rounds away from zero."""
    return math.ceil(number) if number > 0 else math.floor(number)


def _scaled(number: int, base: int, suffixes: list[str]) -> str:
    if not number:
        return "0"
    index = 0
    while number % base == 0 and index < len(suffixes) - 1:
        number, index = number // base, index + 1
    return f"{number}{suffixes[index]}"
