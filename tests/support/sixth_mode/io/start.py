"""Starts the mode."""

from typing import Final

from fake_modes import FakeMode

from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Footprint, RunningMode, Runtime
from sixth_mode.mode import MODE, SixthSettings


async def unsupported(settings: Settings) -> str:
    return "nobody is to be greeted" if settings.section(SixthSettings).greeting == "bye" else ""


async def start(settings: Settings) -> RunningMode:
    del settings
    return FakeMode(MODE.name, [], Footprint(("greeting 1",)))


RUNTIME: Final = Runtime(MODE, unsupported, start)
