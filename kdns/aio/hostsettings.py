"""What kube-proxy sets on its host beside rules: limits of connection tracking, and the process's oom_score_adj.

Differs: a kernel that tracks more connections than asked for goes on to do so; kube-proxy lowers its limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kdns import logs
from kdns.proxy.settings import Conntrack

MOST_CONNECTIONS: Final = 1 << 20
"""The limit by number of CPUs goes no further."""
FOLDERS: Final = (Path("/host/proc/sys"), Path("/proc/sys"))
"""Where sysctls are: a container without privileges finds its own /proc/sys read-only, and the host's mounted."""
BUCKET_CONNECTIONS: Final = 4

_FOLDER: Final = "net/netfilter"
RAISED: Final = frozenset({f"{_FOLDER}/nf_conntrack_max", f"{_FOLDER}/nf_conntrack_buckets"})
"""Never lowered."""

log = logs.get(__name__)


def sysctls(conntrack: Conntrack, cpus: int) -> dict[str, int]:
    """The sysctls that these settings ask for; a setting of 0 leaves the kernel's."""
    limit = connection_limit(conntrack, cpus)
    asked = {
        "nf_conntrack_max": limit,
        "nf_conntrack_buckets": limit // BUCKET_CONNECTIONS,
        "nf_conntrack_tcp_timeout_established": round(conntrack.tcp_established_timeout_s),
        "nf_conntrack_tcp_timeout_close_wait": round(conntrack.tcp_close_wait_timeout_s),
        "nf_conntrack_tcp_be_liberal": int(conntrack.tcp_be_liberal),
        "nf_conntrack_udp_timeout": round(conntrack.udp_timeout_s),
        "nf_conntrack_udp_timeout_stream": round(conntrack.udp_stream_timeout_s),
    }
    return {f"{_FOLDER}/{name}": value for name, value in asked.items() if value > 0}


def connection_limit(conntrack: Conntrack, cpus: int) -> int:
    """How many connections are tracked at most: so many per CPU, no less than `min`; 0 for the kernel's own limit."""
    if not conntrack.max_per_core:
        return 0
    return max(conntrack.min, min(conntrack.max_per_core * cpus, MOST_CONNECTIONS))


def apply_sysctls(conntrack: Conntrack) -> None:
    """Set them. What cannot be set is told, and is no reason to stop: the dataplane works with other limits too."""
    refused = list(_refused(sysctls(conntrack, os.cpu_count() or 1)))
    if refused:
        log.warning(
            "connection tracking keeps its own limits",
            refused=refused,
            wanted="/proc/sys/net/netfilter to be writable here, or `kdns proxy --init-only` with all of root's rights",
        )


def apply_oom_score(score: int) -> None:
    """Make the process as likely to be ended when memory is short as the number says."""
    path = Path("/proc/self/oom_score_adj")
    try:
        if int(path.read_text(encoding="ascii")) != score:
            path.write_text(str(score), encoding="ascii")
    except OSError as error:
        log.info("oom_score_adj stays", wanted=score, reason=error.strerror, needed="CAP_SYS_RESOURCE")


def _refused(wanted: dict[str, int]) -> Iterator[str]:
    for name, value in wanted.items():
        path = next((found for folder in FOLDERS if (found := folder / name).exists()), FOLDERS[-1] / name)
        try:
            there = int(path.read_text(encoding="ascii"))
            if there < value or (there > value and name not in RAISED):
                path.write_text(str(value), encoding="ascii")
                log.info("sysctl set", name=name, value=value)
        except OSError as error:
            yield f"{name} = {value}: {error.strerror}"
