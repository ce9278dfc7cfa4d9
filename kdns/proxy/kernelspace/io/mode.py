"""Mode kernelspace on this machine: how it starts and cleans up."""

from __future__ import annotations

from typing import Final

from kdns.proxy.kernelspace.io.clean_up import remove_hcn_objects
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Mode, RunningMode


async def _unsupported(settings: Settings) -> str:
    from kdns.proxy.kernelspace.io.start import unsupported  # noqa: PLC0415 - clean-ups need none of it

    return await unsupported(settings)


async def _start(settings: Settings) -> RunningMode:
    from kdns.proxy.kernelspace.io.start import start  # noqa: PLC0415 - clean-ups need none of it

    return await start(settings)


MODE: Final = Mode(
    "kernelspace",
    unsupported=_unsupported,
    start=_start,
    cleanups=(remove_hcn_objects,),
    sync_failures="kdns_proxy_kernelspace_sync_failures",
    cleanup_failures="kdns_proxy_kernelspace_cleanup_failures",
)
