"""Immutable values of the hot path: Structs are made, and copied with changes, in a third of a dataclass's time."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, structs


class Value(Struct, frozen=True):
    """A value whose fields never change; `evolve` makes another one."""


evolve: Final = structs.replace
"""Copies a Value with other fields: `evolve(request, zone=".")`; TypeError for a field that it lacks."""
