"""Named tuples that are copied with changes for every query."""

from __future__ import annotations

from typing import Any, TypeVar

Class = TypeVar("Class", bound=type[Any])


def quick_replace(cls: Class) -> Class:
    """Returns the same named tuple with a `_replace` that takes half of the time or less; a class decorator.

    The standard one looks up every field in the changes; this one only sets changed fields.
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
