"""Named tuples of which changed copies are made for every query."""

from __future__ import annotations

from typing import Any, TypeVar

Class = TypeVar("Class", bound=type[Any])


def quick_replace(cls: Class) -> Class:
    """A class decorator: the same named tuple, whose `_replace` takes half of the time or less.

    The standard one looks for every field among the changes; this one only sets what changes.
    """
    positions = {name: position for position, name in enumerate(cls._fields)}
    make = tuple.__new__

    def replace(self: Any, /, **changes: Any) -> Any:
        values = [*self]
        for name, value in changes.items():
            values[positions[name]] = value
        return make(cls, values)

    cls._replace = replace
    return cls
