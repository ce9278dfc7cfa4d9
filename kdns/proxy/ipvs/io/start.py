"""Starts mode ipvs, and says why it cannot work here: tried by doing, so that modules are loaded.

Nothing of the attempt stays.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from contextlib import suppress
from typing import Final

from kdns.errors import ApplyError, BusyError, InputError
from kdns.netlink.io.ipset import ipsets
from kdns.netlink.io.ipvs import Ipvs, ipvs
from kdns.netlink.ipset import SetType
from kdns.netlink.ipvs import Operation, ServerOptions, Timeouts, Verb, VirtualServerKey
from kdns.proxy.ipvs.io import link, sysctls
from kdns.proxy.ipvs.io.counters import connections
from kdns.proxy.ipvs.io.proxier import IpvsProxier
from kdns.proxy.ipvs.io.sets import TRIAL
from kdns.proxy.ipvs.io.sysctls import apply_ipvs_sysctls
from kdns.proxy.ipvs.ipvs import IpvsOptions
from kdns.proxy.ipvs.mode import MODE
from kdns.proxy.ipvs.sets import HASH_IP_PORT, SETS
from kdns.proxy.ipvs.settings import SCHEDULERS, IpvsSettings
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Runtime
from kdns.proxy.xtables.io import programs
from kdns.proxy.xtables.io.programs import CHECK, Programs
from kdns.runtime.requirements import CAPABILITY
from kdns.runtime.subprocesses import run_program

_MOST_S: Final = 2**31 - 1
"""A message has no room for more."""
_EVERYWHERE_S: Final = _MOST_S // 1000
"""The kernel measures in ticks, at most 1000 a second."""
_DUMMY: Final = VirtualServerKey("198.51.100.0", 20000, "TCP")
"""A virtual server that nobody asks (RFC 5737); kube-proxy tries with the same."""
_RULES: Final = (
    f"-A {CHECK} -m set --match-set {TRIAL} dst,dst -j RETURN",
    f"-A {CHECK} -m ipvs --vaddr {_DUMMY.address} --vproto tcp --vport {_DUMMY.port} -j DROP",
)


async def start(settings: Settings) -> IpvsProxier:
    """Nothing is in the kernel yet but settings."""
    iptables, served = await programs.chosen()
    await asyncio.to_thread(_prepare, settings.section(IpvsSettings))
    return IpvsProxier(iptables, served, IpvsOptions.of(settings))


def timeouts(settings: IpvsSettings) -> Timeouts:
    """The kernel supports whole seconds only."""
    values = settings.tcp_timeout_s, settings.tcp_fin_timeout_s, settings.udp_timeout_s
    return Timeouts(*(min(max(round(value), 1), _MOST_S) if value > 0 else 0 for value in values))


def _prepare(settings: IpvsSettings) -> None:
    apply_ipvs_sysctls(settings)
    wanted = timeouts(settings)
    if any(wanted):
        try:
            with ipvs() as kernel:
                kernel.set_timeouts(wanted)
        except OSError as error:
            found = f"timeouts of IPVS, {wanted}: {error.strerror or error}"
            raise ApplyError(
                ("netlink",), f"{found}; expected {_EVERYWHERE_S} s or less, as every kernel takes"
            ) from error


async def unsupported(settings: Settings) -> str:
    """InputError for a scheduler that no kernel has."""
    scheduler = settings.section(IpvsSettings).kernel_scheduler
    await load_modules("ip_vs", f"ip_vs_{scheduler}")
    if reason := await asyncio.to_thread(
        lambda: _ipvs(scheduler) or _ipset() or link.unsupported() or sysctls.unsupported()
    ):
        return reason
    found, reason = await programs.choose()
    return await _rules(found) if found else reason


def _ipvs(scheduler: str) -> str:
    try:
        with ipvs() as kernel:
            return _scheduler(kernel, scheduler)
    except PermissionError:
        return f"IPVS may not be used; {CAPABILITY}"
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.EPROTONOSUPPORT}:
            _require_scheduler(scheduler)
            return f"the kernel has no IPVS; load its module ip_vs ({os.uname().release})"
        return f"IPVS does not answer: {error.strerror or error}"


def _scheduler(kernel: Ipvs, scheduler: str) -> str:
    if any(server.scheduler == scheduler for server in kernel.servers().values()):
        return ""
    try:
        failures = kernel.carry_out([Operation(Verb.NEW_SERVER, _DUMMY, options=ServerOptions(scheduler))])
        made = kernel.server(_DUMMY)
    finally:
        kernel.carry_out([Operation(Verb.DELETE_SERVER, _DUMMY)])
    for operation, error in failures:
        if error == errno.ENOENT:
            _require_scheduler(scheduler)
            return f"the kernel has no scheduler {scheduler}; load its module ip_vs_{scheduler}"
        return f"the kernel refuses a virtual server: {operation}: {os.strerror(error)}"
    if made is None or made.scheduler != scheduler:
        return f"the kernel does not show the virtual server {_DUMMY.address}:{_DUMMY.port}, which it has taken"
    return ""


def _require_scheduler(scheduler: str) -> None:
    if scheduler not in SCHEDULERS:
        raise InputError(f"ipvs.scheduler: unknown scheduler {scheduler!r}; expected one of {', '.join(SCHEDULERS)}")


def _ipset() -> str:
    try:
        with ipsets() as kernel:
            kernel.headers()
            for kind in dict.fromkeys(kind for kind, _ in SETS.values()):
                if lack := kernel.lacks(kind):
                    module = f"ip_set_{kind.replace(':', '_').replace(',', '')}"
                    return f"the kernel has no sets of type {kind} ({lack}); load its module {module}"
    except PermissionError:
        return f"sets of addresses may not be used; {CAPABILITY}"
    except OSError as error:
        return f"the kernel has no sets of addresses ({error.strerror or error}); load its module ip_set"
    return ""


async def _rules(found: Programs) -> str:
    """Why rules cannot match what is in a set, or what a virtual server has translated."""
    await asyncio.to_thread(_trial_set, is_wanted=True)
    try:
        reason = await found.check("IPv4", {"filter": _RULES})
    except BusyError:
        return ""  # another program holds the lock: the first sync tells
    finally:
        await asyncio.to_thread(_trial_set, is_wanted=False)
    if not reason:
        return ""
    first = reason.partition("\n")[0]
    return f"rules of iptables cannot match sets ({first}); load the kernel's modules xt_set and xt_ipvs"


def _trial_set(*, is_wanted: bool) -> None:
    with ipsets() as kernel:
        kernel.destroy(TRIAL)
        if is_wanted:
            with suppress(FileExistsError):  # a process was killed here, and its rule is still there
                kernel.create(TRIAL, SetType(HASH_IP_PORT, "IPv4"))


async def load_modules(*names: str) -> None:
    """Loads modules of the kernel, as far as they can be: what is built in needs none."""
    program = shutil.which("modprobe", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if program is None:
        return
    with suppress(OSError):
        await run_program((program, "-q", "-a", "--", *names))


RUNTIME: Final = Runtime(MODE, unsupported, start, connections)
