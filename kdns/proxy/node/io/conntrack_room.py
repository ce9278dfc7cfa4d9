"""Warns when the kernel's connection tracking is nearly full.

A full table loses every packet of a new connection, that of kdns to the API server too, and a Service then looks as if
its rules were wrong. The kernel says so in its own log only.

Differs: kube-proxy does not look at it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from kdns import logs

LOOK_S: Final = 10.0
FULL_SHARE: Final = 0.95
"""The share of used entries that causes a warning."""
CALM_SHARE: Final = 0.8
"""The share of used entries below which the next warning is possible."""

log = logs.get(__name__)


class ConntrackRoom:
    """Compares the number of tracked connections with its limit. `folder` has the kernel's sysctls."""

    def __init__(self, folder: Path = Path("/proc/sys/net/netfilter")) -> None:
        self._folder = folder
        self._has_warned = False

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Logs if the table is nearly full, or is not any more. Nothing is said where the kernel does not tell."""
        try:
            count, limit = (self._read(name) for name in ("nf_conntrack_count", "nf_conntrack_max"))
        except (OSError, ValueError):
            return
        if limit <= 0:
            return
        if not self._has_warned and count >= FULL_SHARE * limit:
            self._has_warned = True
            log.warning(
                "connection tracking nearly full: a full table loses new connections",
                connections=count,
                limit=limit,
                expected="a higher conntrack.maxPerCore, or net.netfilter.nf_conntrack_max",
            )
        elif self._has_warned and count < CALM_SHARE * limit:
            self._has_warned = False
            log.info("connection tracking has room again", connections=count, limit=limit)

    def _read(self, name: str) -> int:
        return int((self._folder / name).read_text(encoding="ascii"))
