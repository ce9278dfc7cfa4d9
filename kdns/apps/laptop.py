"""`kdns laptop`: points this machine's resolver at kdns (on), undoes it (off), shows its state (status)."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kdns.apps.resolvers import MARK, PAGE, ClusterNames, LocalResolver, resolver_of
from kdns.dns.message import query
from kdns.dns.types import A
from kdns.errors import ApplyError, InputError
from kdns.net import is_loopback
from kdns.runtime.process import ending
from kdns.runtime.subprocesses import run_program
from kdns.runtime.tasks import uninterrupted
from kdns.upstream.io import peers
from kdns.upstream.upstream import UpstreamError

ANSWER_S: Final = 2.0
RESTART_S: Final = 60.0
MDNS: Final = "mdns"
"""A word of nsswitch.conf(5) whose module resolves all names below `.local`."""


@dataclass(frozen=True, slots=True)
class LaptopStatus:
    """The machine's resolver: its service, the file for kdns and whether it exists (`is_on`); "" if unknown.

    `answers`: kdns responds. `addresses` are those that this machine's programs get for `name`.
    """

    service: str
    file: str
    is_on: bool
    answers: bool
    name: str
    addresses: tuple[str, ...]


async def turn_on(names: ClusterNames, warn: Callable[[str], None], root: Path = Path("/")) -> str:
    """Returns the written file. Raises InputError for an unknown resolver, and for a file that kdns did not write."""
    if not is_loopback(names.dns.host):
        warn(f"{names.dns} is not a loopback address: who answers there decides where Services lead")
    if names.domain.endswith(".local") and MDNS in _hosts_line(root):
        warn(f".local belongs to mDNS here (/etc/nsswitch.conf): take another --cluster-domain than {names.domain}")
    resolver = _resolver(root)
    path = root / resolver.file
    await _restarted_with(resolver.service, path, resolver.content(names), _own_content(path))
    return str(path)


async def turn_off(root: Path = Path("/")) -> str:
    """Returns the removed file, "" if there is none. Raises as `turn_on`."""
    resolver = _resolver(root)
    path = root / resolver.file
    before = _own_content(path)
    if not before:
        return ""
    await _restarted_with(resolver.service, path, "", before)
    return str(path)


async def status(names: ClusterNames, root: Path = Path("/")) -> LaptopStatus:
    """Waits up to ANSWER_S for kdns."""
    resolver, name, answers = resolver_of(root), f"kubernetes.default.svc.{names.domain}", False
    addresses: dict[str, None] = {}
    with suppress(OSError):
        rows = await asyncio.get_running_loop().getaddrinfo(f"{name}.", None, type=socket.SOCK_STREAM)
        addresses = {str(row[4][0]): None for row in rows}
    with suppress(UpstreamError):
        answers = bool(await peers.datagram(names.dns, query(f"{name}.", A), ANSWER_S))
    if resolver is None:
        return LaptopStatus("", "", False, answers, name, tuple(addresses))
    path = root / resolver.file
    return LaptopStatus(resolver.service, str(path), path.exists(), answers, name, tuple(addresses))


def _resolver(root: Path) -> LocalResolver:
    resolver = resolver_of(root)
    if resolver is None:
        known = "systemd-resolved, dnsmasq with /etc/dnsmasq.d, NetworkManager with dns=dnsmasq"
        raise InputError(f"no resolver that kdns knows is here; expected {known}; {PAGE} has it by hand")
    return resolver


def _own_content(path: Path) -> str:
    """Empty without a file. Raises InputError for a file that kdns did not write."""
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _denied(path, "read", error) from error
    if not content.startswith(MARK):
        raise InputError(f"{path}: was not written by `kdns laptop on`; move it away, or keep it and use {PAGE}")
    return content


def _write(path: Path, content: str) -> None:
    """Atomically; removes the file if `content` is ""."""
    new = path.with_name(f".{path.name}")  # no resolver reads a hidden file
    try:
        if content:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(content, encoding="utf-8")
            new.replace(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise _denied(path, "written", error) from error


def _denied(path: Path, what: str, error: OSError) -> InputError:
    """Hints at sudo only if a permission is missing."""
    hint = "; run it with sudo" if isinstance(error, PermissionError) and os.geteuid() else ""
    return InputError(f"{path}: cannot be {what}: {error.strerror}{hint}")


async def _restarted_with(service: str, path: Path, content: str, before: str) -> None:
    """If the restart fails, the file is restored: no resolver is worse than no names. Raises ApplyError."""
    _write(path, content)
    try:
        await uninterrupted(_restart(service))
    except (ApplyError, asyncio.CancelledError) as error:
        _write(path, before)
        try:
            await uninterrupted(_restart(service))
        except ApplyError as again:
            reason = f"{again.stderr}; {path} is as it was, but {service} does not run: {PAGE} has what to do by hand"
            raise ApplyError(again.argv, reason) from error
        raise


async def _restart(service: str) -> None:
    command = (shutil.which("systemctl") or "systemctl", "restart", service)
    try:
        done = await run_program(command, limit_s=RESTART_S)
    except OSError as error:
        raise ApplyError(command, f"{error.strerror or error}; {PAGE} has it by hand") from error
    if done.code:
        raise ApplyError(command, done.errors.decode(errors="replace").strip() or ending(done.code))


def _hosts_line(root: Path) -> str:
    with suppress(OSError):
        for line in (root / "etc/nsswitch.conf").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("hosts:"):
                return line
    return ""
