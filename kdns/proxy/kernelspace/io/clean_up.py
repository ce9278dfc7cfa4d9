"""Removes what mode kernelspace has left in HCN: load balancers and endpoints with kdns's ids."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import CleanUp, Footprint


async def remove_hcn_objects(settings: Settings, kept: Footprint) -> Sequence[str]:
    """Removes them; see `CleanUp`. On other systems than Windows there is nothing."""
    del settings, kept
    if sys.platform == "win32":
        from kdns.proxy.kernelspace.io.start import remove_leftovers  # noqa: PLC0415 - loaded where there is something

        return await asyncio.to_thread(remove_leftovers)
    return []


CLEAN_UPS: Final = (CleanUp(remove_hcn_objects),)
