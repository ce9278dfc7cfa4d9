"""The interface of directives: a directive is a row of a table (kdns.plugins.directives).

A row turns stanzas into frozen configurations. A plugin of the chain gets a configuration and the World; settings
apply to the server block.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from kdns.answers.chain import Plugin, Reply, Request, ServeResult
from kdns.answers.response import Subject
from kdns.cluster.source import ClusterSpec
from kdns.cluster.state import OnChange, State
from kdns.corefile.address import all_zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Stanza
from kdns.errors import CorefileError
from kdns.net import HostPort
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.listener_options import TlsConfig
from kdns.serverblocks.stanza import configured, count, folded, text
from kdns.tally import Tally
from kdns.upstream.upstream import Upstream, UpstreamSpec

Config = TypeVar("Config")
Given = TypeVar("Given")
T = TypeVar("T")
Result = TypeVar("Result")

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Sample: TypeAlias = tuple[tuple[str, ...], float]
"""Label values, and the value."""


class Repeat(Enum):
    """The effect of several stanzas of one directive in a server block."""

    ERROR = "error"
    """The directive may occur only once."""
    LAST = "last"
    """The last one is used, as in CoreDNS: an imported file may override earlier lines."""
    ADD = "add"
    """All of them are used."""


class UnreadableFileError(CorefileError):
    """A file or directory that cannot be read now."""


class Counters(Protocol):
    """A family of counters; `tally` makes one that does not exist yet."""

    def tally(self, *values: str) -> Tally: ...


class Histogram(Protocol):
    """Counts of measured values."""

    def add(self, value: float, /) -> None: ...


class Histograms(Protocol):
    """A family of histograms, by label values."""

    def histogram(self, *values: str) -> Histogram: ...


class RandomNumbers(Protocol):
    """Unpredictable numbers."""

    def randrange(self, stop: int, /) -> int: ...


class Future(Protocol[Result]):
    """A value that another coroutine sets once; the awaiting one may be cancelled, which counts as done."""

    def done(self) -> bool: ...

    def set_result(self, result: Result, /) -> None: ...

    def __await__(self) -> Generator[Any, None, Result]: ...


@dataclass(frozen=True, slots=True)
class FrameSpec:
    """The destination of frames: a socket's `path`, or an `address`; `skip_verify` disables verification of TLS.

    With `listens`, collectors connect to it, and `tls` is the certificate of this end.
    At most `queued` frames wait, and `buffer_bytes` of them are written to a connection at a time.
    """

    scheme: Literal["unix", "tcp", "tls"]
    path: str = ""
    address: HostPort | None = None
    skip_verify: bool = False
    queued: int = 10_000
    buffer_bytes: int = 1 << 20
    listens: bool = False
    tls: TlsConfig | None = None

    def __str__(self) -> str:
        return f"unix://{self.path}" if self.scheme == "unix" else f"{self.scheme}://{self.address}"


class World(Protocol):
    """Everything that a directive may use besides its configuration: directives do no I/O themselves.

    Work that it requests starts when the server block begins to answer, and ends with the block.
    """

    @property
    def zones(self) -> tuple[str, ...]:
        """Those of the server block."""

    @property
    def own_addresses(self) -> tuple[bytes, ...]:
        """Packed; all of the machine's if the block listens on every address."""

    @property
    def hostname(self) -> str:
        """In a cluster the name of the Pod."""

    @property
    def random(self) -> RandomNumbers: ...

    def now_s(self) -> float:
        """The event loop's clock, as in `Request.received_s`, in seconds."""

    def unix_s(self) -> float:
        """Seconds since 1970."""

    def plugins(self) -> tuple[Plugin, ...]:
        """The plugins of the server block, in the chain's order; () until all are built."""

    def resolve(self, request: Request) -> ServeResult:
        """The reply of the whole server to an internal query: any block may answer it.

        SERVFAIL before the server listens, and after too many internal queries, each caused by the previous one.
        """

    def forget(self, subjects: Iterable[Subject]) -> None:
        """Drops the answers that depend on these subjects from the tables in front of the chain."""

    def settle(self, subject: Subject) -> None:
        """Counts the hits so far of answers that depend on this subject."""

    def readiness(self, name: str, is_ready: Callable[[], bool]) -> None:
        """Makes the readiness of the server block depend on this directive."""

    def prepare(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs a coroutine before the block answers its first query.

        If it raises an InputError, the start fails, or a reload keeps the old server blocks.
        """

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Starts a coroutine when the block begins to answer; cancelled at the end of the block."""

    def on_stop(self, call: Callable[[], None]) -> None:
        """Calls a function when the server block ends."""

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object: ...

    def future(self) -> Future[Any]: ...

    def with_timeout(self, timeout_s: float, reply: Awaitable[Reply]) -> Awaitable[Reply]:
        """The reply if it arrives in time; otherwise raises TimeoutError and cancels the work on it."""

    def path(self, name: str) -> str:
        """Relative to the folder `root`, unless the name begins with a slash."""

    def has_file(self, path: str) -> bool: ...

    def watch_file(
        self,
        kind: str,
        path: str,
        every_s: float,
        read: Callable[[Any], None],
        *,
        parse: Callable[[str], Any] | None = None,
        is_optional: bool = False,
    ) -> None:
        """Calls `read` with a file's text, now and after each change; checks every `every_s` seconds, 0: never again.

        If `read` raises a CorefileError, the start fails; later the error is logged, and the old text stays in use.
        With `parse`, which runs in a thread, `read` gets its result, at first before the block answers. With
        `is_optional` a missing file is empty.
        """

    def in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        """`work` may block, and use `read_text` and `files_below`."""

    def read_text(self, path: str) -> str:
        """UnreadableFileError for a missing file, CorefileError if it is too large or not UTF-8. Only in a thread."""

    def files_below(self, directory: str) -> tuple[str, ...]:
        """The paths of all files, sorted; UnreadableFileError for a missing directory. Only in a thread."""

    def counters(self, name: str, text: str, labels: Sequence[str]) -> Counters:
        """A family that continues across reloads; `name` has no `_total`. Clients choose no label values."""

    def histograms(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> Histograms:
        """A family with these upper bounds, which continues across reloads."""

    def expose(self, name: str, text: str, labels: Sequence[str], samples: Callable[[], Iterable[Sample]]) -> None:
        """Adds a family of gauges until the block ends; `samples` is called at each scrape."""

    def log(self, level: Level, event: str, **facts: object) -> None: ...

    def report(self, event: str, errors: Sequence[CorefileError], **facts: object) -> None:
        """Logs mistakes in files, a line each, that do not stop the block; `kdns check` collects them."""

    def print_line(self, level: Level, event: str, line: str, facts: Mapping[str, object]) -> None:
        """Writes a line of `log` or `errors` in CoreDNS's format; with `--log-format json` the event and facts."""

    def upstream(self, spec: UpstreamSpec) -> Upstream:
        """Closed with the block; InputError for an unusable address or file.

        Blocks with the same specification share sockets and connections.
        """

    def cluster(self, spec: ClusterSpec, changed: OnChange, *, startup_timeout_s: float) -> State:
        """The server waits up to `startup_timeout_s` for the first complete list."""

    def datagram(self, address: HostPort, packet: bytes, timeout_s: float, source: str = "") -> Awaitable[bytes]:
        """The response to a message over UDP, its id and question checked; UpstreamError without one."""

    def messages(
        self, address: HostPort, packet: bytes, timeout_s: float, source: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """The messages of an answer over TCP, their ids checked, until the caller stops; UpstreamError without one.

        `timeout_s` is for the connection, and for each message.
        """

    def frames(self, spec: FrameSpec, lost: Tally) -> Callable[[bytes], None]:
        """A sender of frames to a collector until the block ends; it never blocks, and counts lost frames."""


@dataclass(frozen=True, slots=True)
class NoConfig:
    """The configuration of a directive without arguments and options."""


@dataclass(frozen=True, slots=True, eq=False)
class Directive(Generic[Config, Given]):
    """One row of the table.

    - `usage` begins with the directive's name. If it ends in `[ZONES...]`, `config` gets the zones as one argument
      after the others; they default to those of the server block.
    - `config` makes the configuration of the arguments, each read by `argument`.
    - `parse` makes it of the stanza and the block's zones instead, where arguments mean more; raises CorefileError.
    - `plugin` makes the plugin of the last stanza's configuration, with Repeat.ADD of a tuple of all; None: not linked.
    - `options` are the options of its block, by name; with `folds` in any case.
    - `needs` are options that the block must have, "" for any one, with the error if it is missing.
    - `example` are the fewest valid arguments: with them the options are checked if the arguments are wrong.
    - `sets_up` returns the settings of the server block.
    - `warnings` are mistakes that do not prevent a start; `warned` is the event of their log lines.
    """

    usage: str
    config: Callable[..., Config]
    plugin: Callable[[Given, World], Plugin | None] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    repeat: Repeat = Repeat.ERROR
    argument: Callable[[Token], object] = text
    parse: Callable[[Stanza, tuple[str, ...]], Config] | None = None
    example: str = ""
    sets_up: Callable[[Config], BlockOptions] | None = None
    warnings: Callable[[Config], Iterable[CorefileError]] = lambda _: ()
    warned: str = ""
    folds: bool = False
    needs: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.usage.partition(" ")[0]

    def read(self, stanza: Stanza, zones: tuple[str, ...]) -> Config:
        """`zones` are those of the server block; raises CorefileError."""
        if self.parse:
            return self.parse(stanza, zones)
        count(stanza, self.usage)
        words, args = self.usage.split()[1:], stanza.args
        others = len(words) - 1 if words[-1:] == ["[ZONES...]"] else len(args)
        values = [*map(self.argument, args[:others])]
        if others < len(words) and words[-1] == "[ZONES...]":
            values.append(all_zones(args[others:]) or zones)
        config = configured(self.config(*values), folded(stanza) if self.folds else stanza, self.options)
        for option, reason in self.needs.items():
            if not any(option in {line.name, ""} for line in stanza.block):
                raise stanza.error(reason)
        return config


Row: TypeAlias = Directive[Any, Any]
