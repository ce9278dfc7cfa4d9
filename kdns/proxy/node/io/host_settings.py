"""Host settings of kube-proxy: sysctls of connection tracking, and the process's oom_score_adj.

Differs: a limit of tracked connections that is higher than the settings' stays; kube-proxy lowers it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kdns import logs
from kdns.proxy.settings.settings import Conntrack

MAX_CONNECTIONS: Final = 1 << 20
"""The upper bound of the limit by number of CPUs."""
FOLDERS: Final = (Path("/host/proc/sys"), Path("/proc/sys"))
"""Where sysctls are. In a container without privileges its own /proc/sys is read-only, and the host's is mounted."""
BUCKET_CONNECTIONS: Final = 4

_FOLDER: Final = "net/netfilter"
NEVER_LOWERED: Final = frozenset({f"{_FOLDER}/nf_conntrack_max", f"{_FOLDER}/nf_conntrack_buckets"})

log = logs.get(__name__)


def sysctls(conntrack: Conntrack, cpus: int) -> dict[str, int]:
    """Returns the sysctls and values of these settings; a setting of 0 leaves the kernel's value.

    The limit of tracked connections is `max_per_core` for each CPU, no less than `min`.
    """
    limit = max(conntrack.min, min(conntrack.max_per_core * cpus, MAX_CONNECTIONS)) if conntrack.max_per_core else 0
    values = {
        "nf_conntrack_max": limit,
        "nf_conntrack_buckets": limit // BUCKET_CONNECTIONS,
        "nf_conntrack_tcp_timeout_established": round(conntrack.tcp_established_timeout_s),
        "nf_conntrack_tcp_timeout_close_wait": round(conntrack.tcp_close_wait_timeout_s),
        "nf_conntrack_tcp_be_liberal": int(conntrack.tcp_be_liberal),
        "nf_conntrack_udp_timeout": round(conntrack.udp_timeout_s),
        "nf_conntrack_udp_timeout_stream": round(conntrack.udp_stream_timeout_s),
    }
    return {f"{_FOLDER}/{name}": value for name, value in values.items() if value > 0}


def apply_sysctls(conntrack: Conntrack) -> None:
    """Sets them. What cannot be set is logged: the dataplane works with other limits too."""
    values = sysctls(conntrack, os.cpu_count() or 1).items()
    reasons = [set_sysctl(name, value, is_lowered=name not in NEVER_LOWERED)[1] for name, value in values]
    if failures := [reason for reason in reasons if reason]:
        log.warning(
            "sysctls of connection tracking not set",
            failures=failures,
            expected="a writable /proc/sys/net/netfilter, or `kdns proxy --init-only` run as privileged root",
        )


def apply_oom_score(score: int) -> None:
    """Sets the process's oom_score_adj: how likely the kernel is to kill it when memory is short."""
    path = Path("/proc/self/oom_score_adj")
    try:
        if int(path.read_text(encoding="ascii")) != score:
            path.write_text(str(score), encoding="ascii")
    except OSError as error:
        log.info("oom_score_adj not set", score=score, reason=error.strerror, expected="CAP_SYS_RESOURCE")


def set_sysctl(name: str, value: int, *, is_lowered: bool = True) -> tuple[bool, str]:
    """Sets one, such as net/ipv4/ip_forward; whether it had another value, and why it could not be set.

    `is_lowered`: a higher value is replaced too.
    """
    path = _path(name)
    try:
        current = int(path.read_text(encoding="ascii"))
        if current == value or (current > value and not is_lowered):
            return False, ""
        path.write_text(str(value), encoding="ascii")
    except OSError as error:
        return False, f"{name} = {value}: {error.strerror}"
    log.info("sysctl set", name=name, value=value)
    return True, ""


def sysctl_refusal(name: str, value: int) -> str:
    """Returns why one cannot be set that has another value, "" if it has this one or can be set. Nothing is changed."""
    path = _path(name)
    try:
        is_set = int(path.read_text(encoding="ascii")) == value or os.access(path, os.W_OK)
    except OSError as error:
        return f"{name} = {value}: {error.strerror}"
    return "" if is_set else f"{name} = {value}: not writable"


def _path(name: str) -> Path:
    return next((path for folder in FOLDERS if (path := folder / name).exists()), FOLDERS[-1] / name)
