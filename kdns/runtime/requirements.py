"""The oldest kernels and programs with which modes work, and the text about older ones."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

Version: TypeAlias = tuple[int, ...]

CAPABILITY: Final = "requires the capability CAP_NET_ADMIN, as root has it or a container is given it"
"""The missing capability of a process that may not change rules."""


def version_in(text: str) -> Version:
    """The first version in a text such as 6.1.0-18-amd64 or v1.0.6 (Lester Gooch #5); () without one."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, match.group().split("."))) if match else ()


def version_problem(subject: str, version_text: str, expected: Version, hint: str = "") -> str:
    """Why a version is too old; "" if it is not, or cannot be parsed."""
    version = version_in(version_text)
    if not version or version >= expected:
        return ""
    return f"{subject} is {_shown(version)}; expected {_shown(expected)} or later{hint}"


def kernel_version_problem(expected: Version, hint: str = "") -> str:
    return version_problem("the kernel", os.uname().release, expected, hint)


def _shown(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
