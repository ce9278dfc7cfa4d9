"""The programs of iptables: which of its two back ends this machine uses, and the one door to them."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from kdns import logs
from kdns.errors import ApplyError, BusyError
from kdns.net import FAMILIES, Family
from kdns.netlink.io import xtables
from kdns.netlink.io.transactions import own_program
from kdns.netlink.xtables import Backend
from kdns.runtime.requirements import CAPABILITY, Version, version_in, version_problem
from kdns.runtime.subprocesses import LIMIT_S, run_program
from kdns.runtime.tasks import uninterrupted

OLDEST: Final = (1, 6, 2)
"""The first iptables-restore that waits for the lock, and the first MASQUERADE --random-fully."""
BACKENDS: Final[tuple[Backend, ...]] = ("nft", "legacy")
KUBELETS: Final = frozenset({"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"})
"""Chains that a kubelet makes in table mangle. They tell which back end the node uses."""

_NAME: Final[dict[Family, str]] = {"IPv4": "iptables", "IPv6": "ip6tables"}
_WAIT: Final = ("-w", "5")
"""How long a program waits for others of iptables-legacy, in seconds; kube-proxy's too."""
_TABLES: Final = ("filter", "nat", "mangle", "raw", "security")
_LINE: Final = re.compile(r"line:? (\d+)")
_SHOWN: Final = 1000
_PROBES: Final = 12
"""How often a back end is asked whether it works, while another program holds the lock: for a minute."""
_PAUSE_S: Final = 0.2
RESTORE_S: Final = 600.0
"""How long a restore may take. One of kube-proxy with 10,000 Services takes iptables-nft three minutes."""
OUTPUT_BYTES: Final = 8 * 1024 * 1024
"""Limit of a list of rules: a rule for each of 10,000 Services takes 2 MB."""
PATIENCE_S: Final = 10.0
"""How long a restore may go on after this process is to stop."""
_NO_LOCK: Final = re.compile("lock file.*(?:Read-only file system|Permission denied)")
_LEGACY_NEEDS: Final = (
    "requires the capability NET_RAW, and /run/xtables.lock of the node writable here, as in deploy/proxy-iptables"
)
_NOT_PERMITTED: Final = re.compile("Operation not permitted|Permission denied|you must be root")
_BUSY: Final = re.compile("xtables lock|Cannot allocate memory|No buffer space|Resource temporarily unavailable")
_NO_CHAIN: Final = "No chain/target/match by that name"
CHECK: Final = "KDNS-CHECK"
"""A chain whose rules show what the kernel accepts. No rule of others leads there."""
_EACH_KIND: Final = {
    "nat": (
        f'-A {CHECK} -m comment --comment "a rule of each kind" -m statistic --mode random --probability 0.5 -j RETURN',
        f"-A {CHECK} -m addrtype --dst-type LOCAL -j MARK --set-xmark 0x4000/0x4000",
        f"-A {CHECK} -m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully",
    ),
    "filter": (f"-A {CHECK} -m conntrack --ctstate NEW -j REJECT",),
}

log = logs.get(__name__)

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class Result(NamedTuple):
    """How a program ended."""

    code: int
    output: str
    errors: str

    @property
    def is_busy(self) -> bool:
        """Whether it was killed, or could not do its work whatever that was."""
        return self.code < 0 or (self.code > 0 and _BUSY.search(self.errors) is not None)


@dataclass(slots=True)
class Programs:
    """The programs of one back end. `suffix` tells them from those of the other back end."""

    backend: Backend
    version: Version
    suffix: str

    async def restore(self, family: Family, text: str) -> None:
        """Runs iptables-restore --noflush; ApplyError, with the line at fault, where it fails.

        BusyError where it could not be asked: it was ended, or another program held the lock for too long.
        It is carried out to its end even when the calling task is cancelled, which takes effect then; but after
        PATIENCE_S more the program is killed. A table is committed as a whole or not at all.
        """
        await uninterrupted(self._restore(family, text), patience_s=PATIENCE_S)

    async def _restore(self, family: Family, text: str) -> None:
        argv = self._argv(family, "-restore", *_WAIT, "--noflush")
        async with _turn():
            result = await _run(argv, text)
        if result.code:
            raise (BusyError if result.is_busy else ApplyError)(argv, await asyncio.to_thread(_reason, result, text))

    async def check(self, family: Family, rules: Mapping[str, Sequence[str]]) -> str:
        """Why the program or the kernel refuses rules, by table, or ""; BusyError if unknown.

        They are those of a chain KDNS-CHECK, to which nothing leads, and which is removed.
        """
        made = [line for table, of_table in rules.items() for line in _section(table, *of_table)]
        removal = [line for table in rules for line in _section(table, f"-X {CHECK}")]
        try:
            await self.restore(family, "\n".join((*made, "")))
        except BusyError:
            raise
        except ApplyError as error:
            return error.stderr
        finally:
            with suppress(ApplyError):
                await self.restore(family, "\n".join((*removal, "")))
        return ""

    async def rules(self, family: Family, table: str, chain: str) -> list[str]:
        """Rules as `-A CHAIN …`, none without such a chain.

        Raises BusyError if it could not be asked.
        """
        argv = self._argv(family, "", *_WAIT, "-S", chain, "-t", table)
        async with _turn():
            result = await _run(argv)
        if result.is_busy:
            raise BusyError(argv, _reason(result))
        if result.code and _NO_CHAIN not in result.errors:
            log.info("rules not listed", chain=chain, table=table, reason=_reason(result))
        return [line for line in result.output.splitlines() if line.startswith("-A ")]

    async def refusal(self, family: Family) -> str:
        """Why the kernel would not take a family's rules, or "". Nothing stays of the attempt.

        Where another program holds the lock, that is waited for: it says nothing about this back end and this family.
        """
        reason = ""
        for _ in range(_PROBES):
            try:
                reason = await self.check(family, _EACH_KIND)
            except BusyError as error:
                reason = error.stderr
                log.warning("iptables is busy", family=family, reason=reason)
                await asyncio.sleep(_PAUSE_S)
            else:
                break
        return reason and f"{_NAME[family]}{self.suffix}: {reason}"

    def _argv(self, family: Family, kind: str, *arguments: str) -> tuple[str, ...]:
        name = f"{_NAME[family]}{self.suffix}{kind}"
        return (_path(name) or name, *arguments)


def _turn() -> asyncio.Lock:
    """Held by each program while it runs: those of iptables-legacy would wait for each other, and not for long."""
    return _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())


def rule_words(rule: str) -> list[str]:
    """The arguments of a listed rule, without its chain; empty if they cannot be split.

    They may not be in the order in which they were given. A comment may have ends of lines.
    """
    try:
        return shlex.split(rule)[2:]
    except ValueError:
        return []


async def installed() -> dict[Backend, Programs]:
    found: dict[Backend, Programs] = {}
    for backend in BACKENDS:
        if text := await _version_text(f"iptables-{backend}"):
            found[backend] = Programs(backend, version_in(text), f"-{backend}")
    if not found and (text := await _version_text("iptables")):
        backend = "nft" if "nf_tables" in text else "legacy"
        found[backend] = Programs(backend, version_in(text), "")
    return found


async def choose() -> tuple[Programs | None, str]:
    """The programs of the back end that this node uses, or None and the reason why no back end works."""
    programs = await installed()
    if not programs:
        return None, "iptables-restore is not installed; install the package iptables, 1.6.2 or later"
    preferred = await asyncio.to_thread(preferred_backend)
    reasons = []
    for candidate in sorted(programs.values(), key=lambda made: made.backend != preferred):
        version = ".".join(map(str, candidate.version))
        reason = version_problem("iptables", version, OLDEST) or await candidate.refusal("IPv4")
        if not reason:
            return candidate, ""
        reasons.append(reason)
    return None, reasons[0]


async def chosen() -> tuple[Programs, tuple[Family, ...]]:
    """The node's programs, and the families whose rules the kernel takes; ApplyError if no back end works."""
    programs, reason = await choose()
    if programs is None:
        raise ApplyError(("iptables",), reason)
    served = await families(programs)
    log.info("iptables found", backend=programs.backend, version=".".join(map(str, programs.version)))
    return programs, served


async def families(programs: Programs) -> tuple[Family, ...]:
    """The families whose rules the kernel takes: both, or IPv4."""
    if reason := await programs.refusal("IPv6"):
        log.warning("virtual IPs of IPv6 are not served", reason=reason)
        return FAMILIES[:1]
    return FAMILIES


def preferred_backend() -> Backend:
    """Detects the node's back end as kube-proxy's image does (kubernetes-sigs/iptables-wrappers).

    It is the one that has a kubelet's chains, then the one that has more rules, then nft. Blocks.
    """
    if has_kubelet("nft"):
        return "nft"
    if has_kubelet("legacy"):
        return "legacy"
    legacy = _rule_count("legacy")
    return "legacy" if legacy and legacy > _rule_count("nft") else "nft"


def has_kubelet(backend: Backend) -> bool:
    """Whether a kubelet has made its chains in this back end, in either family. Blocks."""
    for family in FAMILIES:
        with suppress(OSError, ApplyError):
            if KUBELETS & set(xtables.chains_by_table(backend, family).get("mangle", ())):
                return True
    return False


def _rule_count(backend: Backend) -> int:
    count = 0
    for family in FAMILIES:
        for table in _TABLES if backend == "nft" else xtables.legacy_tables(family):
            with suppress(OSError, ApplyError):
                count += sum(xtables.table_content(backend, family, table).rules.values())
    return count


def _path(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


async def _version_text(name: str) -> str:
    path = _path(name)
    return (await _run((path, "--version"))).output if path and _path(f"{name}-restore") else ""


async def _run(argv: tuple[str, ...], restored: str | None = None) -> Result:
    """ApplyError if the program cannot be started, BusyError if it does not end. A restore's output is not read."""
    is_restore = restored is not None
    lines = None if restored is None else (restored,)
    limit_s, output_bytes = (RESTORE_S, 0) if is_restore else (LIMIT_S, OUTPUT_BYTES)
    try:
        with own_program() if is_restore else nullcontext() as started:
            done = await run_program(argv, lines=lines, limit_s=limit_s, output_bytes=output_bytes, started=started)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError | PermissionError)
        raise (ApplyError if is_missing else BusyError)(argv, str(error)) from error
    return Result(done.code, done.output.decode(errors="replace"), done.errors.decode(errors="replace").strip())


def _section(table: str, *lines: str) -> tuple[str, ...]:
    return (f"*{table}", f":{CHECK} - [0:0]", *lines, "COMMIT")


def _reason(result: Result, text: str = "") -> str:
    """The first lines of a program's errors, with the line of the restore that they name, or with advice."""
    if _NO_LOCK.search(result.errors):
        first = result.errors.partition("\n")[0]
        return f"{first}; {_LEGACY_NEEDS}"
    if _NOT_PERMITTED.search(result.errors):
        first = result.errors.partition("\n")[0]
        return f"{first}; {CAPABILITY}"
    named = _LINE.search(result.errors)
    lines = text.splitlines() if named else []
    line = lines[int(named[1]) - 1] if named and 0 < int(named[1]) <= len(lines) else ""
    return (result.errors[:_SHOWN] or f"exit code {result.code}") + (f" ({line[:_SHOWN]})" if line else "")
