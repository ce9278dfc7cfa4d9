"""The control plane of `kdns up` in a process of its own, so requests to the API never delay DNS responses.

The parent writes the options, and later the address of DNS, as JSON to the child's standard input; its end stops the
child. The child writes events to its standard output, as lines of JSON. If the parent is killed, so is the child.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

from kdns import logs
from kdns.controlplane.cluster_config import AddressRange, ClusterConfig
from kdns.errors import ControlPlaneError, KdnsError, ListenError
from kdns.net import HostPort, Network
from kdns.runtime.connections import ConnectionKind, share_out
from kdns.runtime.process import die_with, ending, gc_paused, ignore_signals, signals_blocked

_LINE_BYTES_MAX: Final = 1024 * 1024
_TEXT_CHARACTERS_MAX: Final = 10_000
_STOP_S: Final = 30.0

_PROGRESS_S: Final = 0.1
_SWITCH_INTERVAL_S: Final = 0.001
"""Until a thread that decodes or encodes a large body yields the interpreter to the child's event loop."""


@dataclass(frozen=True, slots=True)
class ControlPlaneOptions:
    """`texts` are files that only the parent can read; endpoints of `trusted` paths may be on loopback."""

    cluster: ClusterConfig
    api: HostPort
    paths: tuple[Path, ...] = ()
    texts: Mapping[Path, str] = field(default_factory=dict)
    trusted: frozenset[Path] = frozenset()
    data: Path | None = None
    token_file: Path | None = None
    tls_cert: str = ""
    tls_key: str = ""
    client_ca: str = ""
    own_token: str = ""
    """The token of kdns itself and of the kubeconfig: one of the file, or beside client certificates a new one."""


def to_json(options: ControlPlaneOptions) -> str:
    texts = {str(path): text for path, text in options.texts.items()}
    return json.dumps(asdict(replace(options, texts={})) | {"texts": texts}, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, range):
        return value.start, value.stop
    return [*value] if isinstance(value, frozenset) else str(value)


def from_json(text: str) -> ControlPlaneOptions:
    return ControlPlaneOptions(**_read(json.loads(text)))


def _read(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _READERS[name](value) if name in _READERS else value for name, value in fields.items()}


def _paths(texts: Iterable[str]) -> tuple[Path, ...]:
    return tuple(map(Path, texts))


def _networks(texts: Iterable[str]) -> tuple[Network, ...]:
    return tuple(map(ip_network, texts))


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "cluster": lambda fields: ClusterConfig(**_read(fields)),
    "service_cidrs": _networks,
    "pod_cidrs": _networks,
    "node_port_range": lambda ends: range(*ends),
    "host_addresses": tuple,
    "lb_pool": lambda ranges: tuple(AddressRange(**fields) for fields in ranges),
    "platform": tuple,
    "api": lambda fields: HostPort(**fields),
    "paths": _paths,
    "texts": lambda texts: {Path(path): text for path, text in texts.items()},
    "trusted": lambda texts: frozenset(_paths(texts)),
    "data": lambda text: text and Path(text),
    "token_file": lambda text: text and Path(text),
}
"""Fields whose values are not JSON's own."""


@dataclass(slots=True)
class ControlPlane:
    """The parent's side of one child: `start`, then `stop`.

    `warn` gets the problems of manifests, `note` their changes after the start, and `show` the current step of a long
    start. `applied` is the number of applied objects as text, `remarks` are about ignored parts.
    """

    options: ControlPlaneOptions
    warn: Callable[[str], None]
    note: Callable[[str], None]
    show: Callable[[str], None]
    address: tuple[str, int] = ("", 0)
    applied: str = ""
    remarks: list[str] = field(default_factory=list)
    _process: asyncio.subprocess.Process | None = None
    _reading: asyncio.Task[None] | None = None
    _started: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        """Waits until the API answers and the manifests are applied. Raises ControlPlaneError."""
        with signals_blocked():
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-m", "kdns.apps.control_plane"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                limit=_LINE_BYTES_MAX,
                start_new_session=True,  # Ctrl-C is for the parent, which stops the child after DNS
            )
        options = json.dumps((os.getpid(), *logs.form(), to_json(self.options))).encode()
        self._send(b"%d\n%b" % (len(options), options))
        self._reading = asyncio.create_task(self._read(process))
        started = asyncio.create_task(self._started.wait())
        try:
            await asyncio.wait((started, self._reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        self.check()

    def dns_at(self, host: str, port: int) -> None:
        """Creates Service kube-dns, whose endpoint is the DNS server at this address."""
        self._send(json.dumps([host, port]).encode())

    def when_ended(self, call: Callable[[], object]) -> None:
        """`call` runs when the child has ended, by itself or by `stop`."""
        if self._reading:
            self._reading.add_done_callback(lambda _: call())

    def check(self) -> None:
        """Raises ControlPlaneError if the child has ended by itself."""
        if self._reading and self._reading.done():
            self._reading.result()

    async def stop(self) -> None:
        """Lets the child finish the requests in flight and close its store. Kills a child that has not started yet."""
        if self._process is None or self._reading is None:
            return
        if not self._started.is_set() and self._process.returncode is None:
            self._process.kill()
        elif self._process.stdin:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_S):
                await self._reading
        except ControlPlaneError:
            pass  # `check` or the child has reported it
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _send(self, line: bytes) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.write(line + b"\n")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        failure: tuple[str, int] | None = None
        while process.stdout and (line := await process.stdout.readline()):
            match json.loads(line):
                case {"warning": text}:
                    self.warn(text)
                case {"phase": text} if not self._started.is_set():
                    self.show(text)
                case {"line": text} if self._started.is_set():
                    self.note(text)
                case {"line": text}:
                    self.remarks.append(text)
                case {"address": [host, port], "applied": [applied, deleted, refused]}:
                    self.address = host, port
                    counts = {"deleted": deleted, "refused": refused}
                    more = ", ".join(f"{count} {verb}" for verb, count in counts.items() if count)
                    self.applied = f"{applied} object{'s' * (applied != 1)}" + (f" ({more})" if more else "")
                    self._started.set()
                case {"error": text, "exit_code": code}:
                    failure = text, code
        status = await process.wait()
        if failure:
            raise ControlPlaneError(*failure)
        if status:
            raise ControlPlaneError(f"the process of the control plane ended with {ending(status)}", 1)


def main() -> None:
    ignore_signals()  # the parent acts on them
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    asyncio.run(_child())


async def _child() -> None:
    commands = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    protocol = asyncio.StreamReaderProtocol(commands)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin.buffer)
    line = await commands.readline()
    if not line:
        return
    try:
        parent, level, log_format, options = json.loads(await commands.readexactly(int(line)))
    except asyncio.IncompleteReadError:
        return
    await commands.readline()
    die_with(parent)
    logs.configure(level, format=log_format)
    try:
        await _run(from_json(options), commands)
    except KdnsError as error:
        _emit(error=str(error)[:_TEXT_CHARACTERS_MAX], exit_code=error.exit_code)


async def _run(options: ControlPlaneOptions, commands: asyncio.StreamReader) -> None:
    from kdns.controlplane.io.local_cluster import LocalCluster  # noqa: PLC0415
    from kdns.controlplane.manifests.changes import ChangeLog  # noqa: PLC0415
    from kdns.controlplane.manifests.io.follower import Applied  # noqa: PLC0415
    from kdns.controlplane.server.access import ADMIN  # noqa: PLC0415
    from kdns.controlplane.server.io.authentication import RestConfig  # noqa: PLC0415 - the parent needs none of it
    from kdns.controlplane.server.io.secure_serving import certificates, read_tokens, tls_context  # noqa: PLC0415

    share_out(ConnectionKind.API, ConnectionKind.UNAUTHENTICATED)
    tokens = read_tokens(options.token_file) if options.token_file else {}
    if options.own_token:
        tokens.setdefault(options.own_token, ADMIN)
    context = tls_context(options.tls_cert, options.tls_key, options.client_ca)
    served = RestConfig(options.api.host, options.api.port, tokens, context)
    root_ca = certificates(options.tls_cert) if options.tls_cert else ""
    local = LocalCluster(replace(options.cluster, root_ca=root_ca), served, options.data, _warn)
    with gc_paused():
        try:
            await local.start()
        except ListenError as error:
            raise ListenError(error.address, error.reason, "--api") from error
        try:
            applied = Applied()
            if options.paths:
                _emit(phase="reading manifests")
                changes = ChangeLog(options.cluster, _emit_line, _progress())
                applied = await local.apply(options.paths, options.texts, _warn, changes, options.trusted, _warn)
            _emit(address=local.address, applied=[applied.applied, applied.deleted, applied.refused])
        except BaseException:
            await local.stop()
            raise
    try:
        while line := await commands.readline():
            local.dns_at(*json.loads(line))
    finally:
        await local.stop()


def _warn(problem: KdnsError | str) -> None:
    _emit(warning=str(problem)[:_TEXT_CHARACTERS_MAX])


def _emit_line(text: str) -> None:
    _emit(line=text[:_TEXT_CHARACTERS_MAX])


def _progress() -> Callable[[str], None]:
    """The step of a pass, at most ten times a second."""
    sent_s = 0.0

    def progress(text: str) -> None:
        nonlocal sent_s
        if (now_s := time.monotonic()) >= sent_s + _PROGRESS_S:
            sent_s = now_s
            _emit(phase=text)

    return progress


def _emit(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
