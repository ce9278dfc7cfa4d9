"""Removes what mode kernelspace has left in HCN: load balancers and endpoints with kdns's ids."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import CleanUp, Footprint


async def remove_hcn_objects(settings: Settings, kept: Footprint) -> Sequence[str]:
    """On other systems than Windows there is nothing. Raises KdnsError if another process of kdns is at work."""
    del settings, kept
    return await asyncio.to_thread(_remove) if sys.platform == "win32" else []


def _remove() -> list[str]:
    from kdns.proxy.kernelspace.io.compute_network import ComputeNetwork  # noqa: PLC0415 - loaded on Windows only
    from kdns.proxy.kernelspace.io.libraries import libraries, lock_machine  # noqa: PLC0415
    from kdns.proxy.kernelspace.io.proxier import remove_objects  # noqa: PLC0415

    lock_machine()
    return remove_objects(ComputeNetwork(libraries()))


CLEAN_UPS: Final = (CleanUp(remove_hcn_objects),)
