"""Starts mode nftables."""

from __future__ import annotations

import os
from typing import Final

from kdns.proxy.nftables.io import nft
from kdns.proxy.nftables.io.counters import connections
from kdns.proxy.nftables.io.proxier import NftablesProxier
from kdns.proxy.nftables.mode import MODE, NftablesSettings
from kdns.proxy.nftables.objects import TABLE
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Runtime
from kdns.runtime.requirements import kernel_version_problem, version_problem
from kdns.runtime.subprocesses import run_program

KERNEL: Final = (5, 13)
NFT: Final = (1, 0, 1)
VERSION_BYTES: Final = 1024
SKIPS_KERNEL: Final = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK"
"""The variable with which kube-proxy takes older kernels, which may have the needed changes as well."""


async def unsupported(settings: Settings) -> str:
    """Tried without a change: a process in a user namespace may have all capabilities, and none that count."""
    del settings
    hint = f"; {SKIPS_KERNEL}=1 in the environment skips this check"
    if not os.environ.get(SKIPS_KERNEL) and (reason := kernel_version_problem(KERNEL, hint)):
        return reason
    if reason := version_problem("nft", await _nft_version(), NFT):
        return reason
    table = f"ip {TABLE}-check"
    return await nft.refusal() or await nft.check(
        f"add table {table}", f"add chain {table} services {{ type nat hook prerouting priority dstnat; }}"
    )


async def _nft_version() -> str:
    """Empty if the program is not installed."""
    program = nft.program_path()
    if program is None:
        return ""
    try:
        done = await run_program((program, "--version"), output_bytes=VERSION_BYTES)
    except OSError:
        return ""
    return done.output.decode(errors="replace")


async def start(settings: Settings) -> NftablesProxier:
    return NftablesProxier(settings.section(NftablesSettings).mark)


RUNTIME: Final = Runtime(MODE, unsupported, start, connections)
