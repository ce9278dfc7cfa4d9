"""The kernel's schedulers of IPVS."""

from __future__ import annotations

from typing import Final

DEFAULT_SCHEDULER: Final = "rr"
"""Round robin, kube-proxy's default of ipvs.scheduler."""
SCHEDULERS: Final = {
    "rr": "each in turn",
    "wrr": "each in turn",
    "lc": "the one with the fewest connections",
    "wlc": "the one with the fewest connections",
    "lblc": "the same as long as it has not too many connections",
    "lblcr": "of those used before the one with the fewest connections, and others where these have too many",
    "dh": "by a hash of the destination, always the same",
    "sh": "by a hash of the client's address",
    "mh": "by a hash of the client's address and port",
    "sed": "the one with the shortest expected delay, that is the fewest connections",
    "nq": "one without connections, or else the one with the shortest expected delay",
    "fo": "always the same, as long as it is there",
    "ovf": "the same as long as it has no connection, then the next",
    "twos": "the one with fewer connections of two that are drawn",
}
"""The kernel's schedulers, and which endpoint each chooses where all have the same weight."""


def chosen_by(scheduler: str) -> str:
    """Words that follow "one of 3 endpoints,"."""
    return SCHEDULERS.get(scheduler, f"as the kernel's scheduler {scheduler} chooses")
