"""The modes that can run, from the rooms of the rows in `modes.py`; a room is imported when its mode is looked up."""

from __future__ import annotations

import sys
from importlib import import_module

from kdns.proxy.modes import MODES
from kdns.proxy.sync.io.proxier import CleanUp, Runtime


def runtime(name: str) -> Runtime:
    of_mode: Runtime = import_module(f"{MODES[name].room}.io.start").RUNTIME
    return of_mode


def clean_ups() -> tuple[CleanUp, ...]:
    """Returns the clean-ups of everything that a proxy of any mode may have left on this system."""
    rooms = [mode.room for mode in MODES.values() if mode.is_of_windows == (sys.platform == "win32")]
    found = dict.fromkeys(each for room in rooms for each in import_module(f"{room}.io.clean_up").CLEAN_UPS)
    return tuple(sorted(found, key=lambda clean_up: clean_up.is_last))
