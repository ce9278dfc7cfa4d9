"""Removes proxies' chains and their jumps from iptables: those of kdns's and kube-proxy's modes iptables and ipvs.

Both back ends are checked, whichever the node uses now. If the kernel has no such chain, no program is run and no
kernel module is loaded.

The kubelet also owns KUBE-FIREWALL. If a kubelet has its chains in this back end, the chain is kept, with its jumps and
its sysctl route_localnet. Otherwise it is removed, and the sysctl is set to 0 if the chain had a rule, which a proxy
adds only together with the sysctl.

Differs: kube-proxy --cleanup always keeps KUBE-FIREWALL and route_localnet, and checks one back end. The counters of
nfacct are kept here too, because rules of the next proxy need them.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kdns import logs
from kdns.errors import ApplyError, BusyError
from kdns.net import FAMILIES, Family
from kdns.netlink.io import xtables
from kdns.netlink.xtables import Backend
from kdns.proxy.node.io.host_settings import set_sysctl
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import CleanUp, Footprint, RuleAuthors
from kdns.proxy.xtables.io.programs import BACKENDS, CHECK, KUBELETS, Programs, installed, rule_words
from kdns.proxy.xtables.names import (
    CANARY,
    FILTER,
    FIREWALL,
    FIXED,
    MANGLE,
    MARK_MASQUERADE,
    NAT,
    SERVICES,
    is_iptables_chain,
    is_ipvs_chain,
    rank,
)
from kdns.proxy.xtables.rules import OWNER

ROUTE_LOCALNET: Final = "net/ipv4/conf/all/route_localnet"

_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOPROTOOPT, errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT})
_BUILT_IN: Final = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
_AT_ONCE: Final = 500
"""Chains that iptables-nft deletes in one commit: its time grows with the square."""
_NAMED: Final = 10
"""Chains of a table that are named when they are removed."""
_MARK: Final = ("-m", "comment", "--comment", OWNER)

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class IptablesPart:
    """A mode's part of iptables, in one back end: "nft" or "legacy".

    `keeps(table, chain)` says which chains are its own. `jumps` are its rules in built-in chains, as (family, table,
    chain, arguments): others that lead to its chains are left over from another mode.
    """

    backend: str
    keeps: Callable[[str, str], bool]
    jumps: frozenset[tuple[Family, str, str, tuple[str, ...]]]


def _own(kept: Footprint, backend: str) -> IptablesPart | None:
    part = kept.part(IptablesPart)
    return part if part and part.backend == backend else None


async def remove_chains(settings: Settings | None, kept: Footprint) -> Sequence[str]:
    """Removes the chains and jumps of proxies, all but those that are kept; see `CleanUp`.

    Where a part cannot be removed, everything else is.
    """
    del settings
    removed: list[str] = []
    failures: list[ApplyError] = []
    programs: dict[Backend, Programs] | None = None
    for backend in ("nft", "legacy"):
        for family in FAMILIES:
            existing = await asyncio.to_thread(_chains, backend, family)
            stale = {} if _is_spared(backend, family, kept) else _stale(backend, existing, kept)
            if not stale and not _own(kept, backend):
                continue
            programs = await installed() if programs is None else programs
            if backend not in programs:
                if stale:
                    log.warning(
                        "rules of another proxy stay", backend=backend, expected=f"the program iptables-{backend}"
                    )
                continue
            try:
                removed += await remove_stale(programs[backend], family, stale, existing, kept)
            except ApplyError as error:
                failures.append(error)
    for failure in failures[:1]:
        raise failure
    return removed


def is_proxys(table: str, chain: str) -> bool:
    """Whether a chain is a proxy's in mode iptables or ipvs, or left from a trial."""
    return is_iptables_chain(table, chain) or is_ipvs_chain(table, chain) or (table in FIXED and chain == CHECK)


def _is_spared(backend: Backend, family: Family, kept: Footprint) -> bool:
    """Whether a kube-proxy may have made the chains, which have the same names."""
    return kept.keep_kube_proxy and (backend, family) not in kept.marked


def _stale(backend: Backend, existing: Mapping[str, list[str]], kept: Footprint) -> dict[str, list[str]]:
    part = _own(kept, backend)
    of_kubelet = {(FILTER, FIREWALL)} if KUBELETS & set(existing.get(MANGLE, ())) else set()

    def is_stale(table: str, chain: str) -> bool:
        is_kept = (table, chain) in of_kubelet or (part is not None and part.keeps(table, chain))
        return is_proxys(table, chain) and not is_kept

    stale = {table: [chain for chain in existing.get(table, ()) if is_stale(table, chain)] for table in FIXED}
    return {table: chains for table, chains in stale.items() if chains}


def _chains(backend: Backend, family: Family) -> dict[str, list[str]]:
    """Chains by table. Tables that this kernel or process may not have are treated as absent.

    Raises BusyError for others that cannot be read: rules that nobody has looked at may be there.
    """
    try:
        return xtables.chains_by_table(backend, family)
    except OSError as error:
        if error.errno in _ABSENT:
            return {}
        reason = f"the tables of iptables-{backend} for {family} cannot be read: {error.strerror}"
        raise BusyError(("getsockopt",), reason) from error
    except ApplyError:
        return {}


async def remove_stale(
    programs: Programs,
    family: Family,
    stale: Mapping[str, list[str]],
    existing: Mapping[str, list[str]],
    kept: Footprint,
) -> list[str]:
    """Removes jumps, then all rules of the chains, then the chains.

    A chain to which rules of others lead cannot be removed: it stays, empty.
    """
    backend = programs.backend
    guards = await _guards(programs, family) if (backend, family) in kept.marked else {}
    loopback = await programs.rules(family, FILTER, FIREWALL) if FIREWALL in stale.get(FILTER, ()) else []
    emptied: list[str] = []
    removed: list[str] = []
    for table in (*guards, *(table for table in FIXED if table not in guards)):
        names = stale.get(table, [])
        jumps = [
            rule
            for chain in _BUILT_IN
            if chain in existing.get(table, ())
            for rule in await programs.rules(family, table, chain)
            if _is_left_over(rule, backend, family, table, chain, set(names), kept)
        ]
        deletions = [f"-D{rule.removeprefix('-A')}" for rule in (*guards.get(table, ()), *jumps)]
        removed += (f"{family} {table} {rule} in iptables-{backend}" for rule in jumps if not names)
        emptied += _commits(table, [*deletions, *(f":{name} - [0:0]" for name in names)], backend)
    if emptied:
        await programs.restore(family, "\n".join((*emptied, "")))
    for table, names in stale.items():
        deleted = await delete_chains(programs, family, table, sorted(names, key=rank))
        removed += (f"{family} {table} {name} in iptables-{backend}" for name in deleted[:_NAMED])
        if len(deleted) > _NAMED:
            removed.append(f"{family} {table} and {len(deleted) - _NAMED} more chains in iptables-{backend}")
    if loopback and family == "IPv4":
        _, reason = set_sysctl(ROUTE_LOCALNET, 0)
        if reason:
            log.warning("sysctl stays", reason=reason, expected="a writable /proc/sys/net")
    return removed


async def delete_chains(programs: Programs, family: Family, table: str, names: list[str]) -> list[str]:
    """Deletes chains that have no rules; those that are gone. One to which rules of others lead stays."""
    try:
        lines = _commits(table, [f"-X {name}" for name in names], programs.backend)
        await programs.restore(family, "\n".join((*lines, "")))
    except ApplyError as error:
        if len(names) == 1:
            log.warning("chain stays, empty", table=table, chain=names[0], reason=error.stderr)
            return []
        middle = len(names) // 2
        parts = [await delete_chains(programs, family, table, part) for part in (names[:middle], names[middle:])]
        return [*parts[0], *parts[1]]
    return names


def _is_left_over(
    rule: str, backend: str, family: Family, table: str, chain: str, stale: set[str], kept: Footprint
) -> bool:
    """Whether a built-in chain's rule leads to a removed chain, or from another mode to a kept one."""
    words = rule_words(rule)
    if words[-2:-1] not in (["-j"], ["-g"]):
        return False
    target = words[-1]
    part = _own(kept, backend)
    if target in stale:
        return True
    if part is None or kept.keep_kube_proxy or not is_proxys(table, target) or target == FIREWALL:
        return False
    return not any(sorted(words) == sorted(own[3]) for own in part.jumps if own[:3] == (family, table, chain))


async def marked() -> frozenset[tuple[str, Family]]:
    """The back ends and families whose chains kdns wrote last, by kdns's own mark."""
    return frozenset(
        [(programs.backend, family) async for programs, family in _with_chains() if await _guards(programs, family)]
    )


async def _with_chains() -> AsyncIterator[tuple[Programs, Family]]:
    """The back ends and families that may have kdns's mark. No program is run without its chain."""
    programs: dict[Backend, Programs] | None = None
    for backend in BACKENDS:
        for family in FAMILIES:
            existing = await asyncio.to_thread(_chains, backend, family)
            if CANARY in existing.get(MANGLE, ()) or MARK_MASQUERADE in existing.get(NAT, ()):
                programs = await installed() if programs is None else programs
                if backend in programs:
                    yield programs[backend], family


async def _guards(programs: Programs, family: Family) -> dict[str, list[str]]:
    """The rule that is kdns's mark, by its table; none if somebody else wrote the chains last.

    A restore that begins with its deletion changes nothing once a kube-proxy has written its rules: to find the mark
    and to remove the chains is one step. Table mangle tells only if table nat has no chain for Services, as after an
    interrupted clean-up.
    """
    existing = await asyncio.to_thread(_chains, programs.backend, family)
    in_nat = {SERVICES, MARK_MASQUERADE} & set(existing.get(NAT, ()))
    table, chain = (NAT, MARK_MASQUERADE) if in_nat else (MANGLE, CANARY)
    own = await _marks(programs, family, table, chain) if chain in existing.get(table, ()) else []
    return {table: own} if own else {}


async def _marks(programs: Programs, family: Family, table: str, chain: str) -> list[str]:
    return [rule for rule in await programs.rules(family, table, chain) if rule_words(rule) == list(_MARK)]


async def authors() -> RuleAuthors:
    """kdns marks its own chains."""
    own = await marked()
    return RuleAuthors(bool(own), await _has_rules_of_others(own), own)


async def _has_rules_of_others(own: Collection[tuple[str, Family]]) -> bool:
    """Whether a back end has rules of a kube-proxy in mode iptables or ipvs: without kdns's mark."""
    for backend in BACKENDS:
        for family in FAMILIES:
            if (backend, family) in own:
                continue
            with suppress(OSError, ApplyError):
                content = await asyncio.to_thread(xtables.table_content, backend, family, NAT)
                if content.rules[SERVICES]:
                    return True
    return False


async def remove_marks(settings: Settings | None, kept: Footprint) -> Sequence[str]:
    """Removes kdns's mark in table mangle where a kube-proxy has taken over the chains; see `CleanUp`."""
    del settings
    removed: list[str] = []
    async for programs, family in _with_chains():
        if not _own(kept, programs.backend) and (programs.backend, family) not in kept.marked:
            for rule in await _marks(programs, family, MANGLE, CANARY):
                await programs.restore(family, f"*{MANGLE}\n-D{rule.removeprefix('-A')}\nCOMMIT\n")
                removed.append(f"{family} {MANGLE} {rule} in iptables-{programs.backend}")
    return removed


async def remove_canaries(kept: Footprint) -> None:
    """Removes the canaries beside kdns's mark: a kube-proxy in mode iptables or ipvs then writes all of its rules.

    It looks for them every syncPeriod, 30 s by default. No rule leads to them.
    """
    async for programs, family in _with_chains():
        if (programs.backend, family) in kept.marked:
            for table in FIXED:
                await programs.restore(family, f"*{table}\n:{CANARY} - [0:0]\n-X {CANARY}\nCOMMIT\n")


def _commits(table: str, commands: Sequence[str], backend: Backend) -> Iterator[str]:
    """Commands in commits of a size that the back end likes."""
    size = _AT_ONCE if backend == "nft" else max(len(commands), 1)
    for start in range(0, len(commands), size):
        yield from (f"*{table}", *commands[start : start + size], "COMMIT")


CHAINS: Final = CleanUp(remove_chains, authors, remove_canaries)
MARKS: Final = CleanUp(remove_marks, is_last=True)
