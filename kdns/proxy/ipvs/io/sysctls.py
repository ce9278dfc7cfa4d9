"""The sysctls of mode ipvs, which are kube-proxy's (pkg/proxy/ipvs/proxier.go)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from kdns import logs
from kdns.errors import ApplyError
from kdns.proxy.ipvs.settings import IpvsSettings
from kdns.proxy.node.io.host_settings import set_sysctl, sysctl_refusal
from kdns.runtime.requirements import Version, version_in

_NEEDED: Final = {
    "net/ipv4/vs/conntrack": 1,
    "net/ipv4/ip_forward": 1,
}
"""Without them packets are not masqueraded, or do not reach endpoints."""
_USEFUL: Final = {
    "net/ipv4/vs/expire_nodest_conn": 1,
    "net/ipv4/vs/expire_quiescent_template": 1,
}
_STRICT_ARP: Final = {"net/ipv4/conf/all/arp_ignore": 1, "net/ipv4/conf/all/arp_announce": 2}
_REUSE: Final = "net/ipv4/vs/conn_reuse_mode"
_REUSE_SINCE: Final[Version] = (4, 1)
_REUSE_UNTIL: Final[Version] = (5, 9)
"""Between these kernels, the port of a client that comes again within two minutes costs it a second's wait; before and
after, the kernel's own setting is right."""

_WANTED: Final = "set these values, or make /proc/sys writable here"

log = logs.get(__name__)


def useful_sysctls(settings: IpvsSettings, kernel: Version) -> dict[str, int]:
    """The mode works without these too."""
    values = dict(_USEFUL)
    if _REUSE_SINCE <= kernel < _REUSE_UNTIL:
        values[_REUSE] = 0
    return values | (_STRICT_ARP if settings.strict_arp else {})


def unsupported() -> str:
    """Why needed sysctls cannot be set, or "" if they can or are."""
    failures = [reason for name, value in _NEEDED.items() if (reason := sysctl_refusal(name, value))]
    return f"sysctls cannot be set: {', '.join(failures)}; {_WANTED}" if failures else ""


def apply_ipvs_sysctls(settings: IpvsSettings) -> None:
    """Sets them; ApplyError if one cannot be set without which the mode does not work. Blocks."""
    if failures := _failures(_NEEDED):
        reason = f"sysctls not set: {', '.join(failures)}"
        raise ApplyError(("sysctl",), f"{reason}; {_WANTED}")
    if failures := _failures(useful_sysctls(settings, version_in(os.uname().release))):
        log.warning("sysctls of IPVS not set", failures=failures, expected="a writable /proc/sys")


def _failures(values: Mapping[str, int]) -> list[str]:
    return [reason for name, value in values.items() if (reason := set_sysctl(name, value)[1])]
