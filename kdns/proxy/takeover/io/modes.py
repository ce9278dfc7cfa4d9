"""The modes that can run: `io/mode.py` of each mode's room, imported when the mode is looked up."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from kdns.proxy.modes import NAMES
from kdns.proxy.sync.io.proxier import CleanUp, Mode
from kdns.proxy.xtables.io.clean_up import remove_marks


class _Modes(Mapping[str, Mode]):
    def __getitem__(self, name: str) -> Mode:
        if name not in NAMES:
            raise KeyError(name)
        mode: Mode = import_module(f"kdns.proxy.{name}.io.mode").MODE
        return mode

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


MODES: Final = _Modes()


def clean_ups() -> tuple[CleanUp, ...]:
    """Returns the clean-ups of everything that a proxy of any mode may have left on this system."""
    if sys.platform == "win32":
        return MODES["kernelspace"].cleanups
    return (*dict.fromkeys(each for mode in MODES.values() for each in mode.cleanups), remove_marks)
