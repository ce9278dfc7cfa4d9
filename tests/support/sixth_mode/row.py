"""The mode's row, beside those of kdns."""

from kdns.proxy.modes import MODES
from sixth_mode.mode import MODE

MODES[MODE.name] = MODE
