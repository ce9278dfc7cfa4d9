"""Starting with a lot to remember: without the garbage collector, which would look through all of it again and again.

API objects hold no cycles and are freed as soon as nobody refers to them. With 150,000 endpoints one look of the
collector takes a third of a second, in which nothing is answered; so what is there after the start is set aside for
good (gc.freeze), and later looks are at what came since.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SELDOM: Final = (20_000, 20, 10)
"""Containers more than were freed, and looks at the youngest and the younger, before the next look at each generation.

A create makes hundreds of containers, hardly one of them in a cycle: with the usual 700 a tenth of its time is spent
looking.
"""


@contextmanager
def loading() -> Iterator[None]:
    """No garbage collection inside, and none of what is left at the end. Within another `loading` it does nothing."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
        gc.set_threshold(*_SELDOM)
    finally:
        gc.enable()
