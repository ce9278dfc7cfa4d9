"""The mode's row, beside those of kdns."""

from __future__ import annotations

from kdns.proxy.modes import MODES
from sixth_mode.mode import MODE

MODES[MODE.name] = MODE
