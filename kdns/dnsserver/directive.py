"""What a directive is: one row of a table (kdns.plugins.directives).

A row reads stanzas into frozen configurations, and makes of them the plugin of the chain or options of the server
block. What a plugin needs of the world comes through seven small protocols, of which it names those that it uses:
directives do no input and output themselves.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from kdns.cluster.source import Scope, Source
from kdns.cluster.state import OnChange, State
from kdns.corefile.lines import Stanza
from kdns.dnsserver.answers.response import Subject
from kdns.dnsserver.block_options import BlockOptions
from kdns.dnsserver.chain import Plugin, Reply, Request
from kdns.dnsserver.frame_streams import FrameSpec
from kdns.errors import CorefileError
from kdns.net import HostPort
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
    """What several stanzas of one directive in a server block mean."""

    ERROR = "error"
    """The directive may stand only once."""
    LAST = "last"
    """The last one counts, as in CoreDNS: an imported file may override what stands above it."""
    ADD = "add"
    """All of them count."""


class Counters(Protocol):
    """A family of counters in the process's metrics."""

    def tally(self, *values: str) -> Tally:
        """The counter with these label values; it goes on from 0, and across reloads."""
        ...


class Histogram(Protocol):
    """Counts of measured values."""

    def add(self, value: float, /) -> None:
        """Count a measured value."""
        ...


class Histograms(Protocol):
    """A family of histograms in the process's metrics."""

    def histogram(self, *values: str) -> Histogram:
        """The histogram with these label values; it goes on across reloads."""
        ...


class UnreadableFileError(CorefileError):
    """A file or directory that cannot be read at present."""


class FileReader(Protocol):
    """The files of this machine, for work in a thread."""

    def text(self, path: str) -> str:
        """The text of a file; UnreadableFileError for none, CorefileError for one that is too large or no UTF-8."""
        ...

    def names(self, directory: str) -> tuple[str, ...]:
        """The paths of all files below a directory, sorted; UnreadableFileError for no directory."""
        ...


class Chance(Protocol):
    """Numbers that nobody can guess (random.SystemRandom), or that a test chose."""

    def random(self) -> float:
        """At least 0 and below 1."""
        ...

    def randrange(self, stop: int, /) -> int:
        """At least 0 and below `stop`."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """So many bits."""
        ...


class Future(Protocol[Result]):
    """A value that somebody else will give; who awaits it may go away."""

    def done(self) -> bool:
        """Whether there is a value, or nobody waits any more."""
        ...

    def set_result(self, result: Result, /) -> None:
        """Give the value, once."""
        ...

    def __await__(self) -> Generator[Any, None, Result]:
        """The value, when it is there."""
        ...


class Clock(Protocol):
    """What time it is."""

    def now_s(self) -> float:
        """The event loop's clock, which `Request.received_s` is read from, in seconds."""
        ...

    def unix_s(self) -> float:
        """The time in seconds since 1970."""
        ...


class Tasks(Protocol):
    """What a directive does beside its answers; it ends with the server block."""

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine until it ends or the server block does, as soon as the block answers."""
        ...

    def prepare(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a coroutine before the block answers its first query.

        An InputError that it raises ends the start, or leaves the old server blocks in use.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        """Call a function after so many seconds."""
        ...

    def future(self) -> Future[Any]:
        """A value that another coroutine will give."""
        ...

    def within(self, timeout_s: float, reply: Awaitable[Reply]) -> Awaitable[Reply]:
        """The reply if it comes in time; TimeoutError, and whoever works on it is cancelled, if it does not."""
        ...

    def on_stop(self, call: Callable[[], None]) -> None:
        """Call a function when the server block ends."""
        ...


class Files(Protocol):
    """The files that the Corefile names."""

    def path(self, name: str) -> str:
        """Where a file of this name is: in the folder of `root`, unless the name begins with a slash."""
        ...

    def has_file(self, path: str) -> bool:
        """Whether there is a file of this name."""
        ...

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
        """Give a file's text to `read`, now and whenever it changes; it is looked at every `every_s` seconds, 0: once.

        A CorefileError that `read` raises ends the start, and later is logged while the old text counts on.
        `read` gets what `parse` makes of the text, in a thread: for what takes longer than a few milliseconds. It gets
        the first of that before the block answers, rather than now.
        With `is_optional` a file that is not there is empty.
        """
        ...

    def in_thread(self, work: Callable[[FileReader], T]) -> Awaitable[T]:
        """What `work` makes of files, in a thread: the loop goes on meanwhile."""
        ...


class Metrics(Protocol):
    """Families of metrics, which go on across reloads."""

    def expose(
        self, name: str, text: str, labels: Sequence[str], samples: Callable[[], Iterable[Sample]], *, counter: bool
    ) -> None:
        """Add a family to the process's metrics; `samples` is called at each scrape."""
        ...

    def counters(self, name: str, text: str, labels: Sequence[str]) -> Counters:
        """A family of counters in the process's metrics; `name` has no `_total`. Clients choose no label values."""
        ...

    def histograms(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> Histograms:
        """A family of histograms in the process's metrics, with these upper bounds."""
        ...


class EventLog(Protocol):
    """What people read of the directive."""

    def log(self, level: Level, event: str, **facts: object) -> None:
        """Write a line."""
        ...

    def report(self, event: str, errors: Sequence[CorefileError], **facts: object) -> None:
        """Log what is wrong in files that the block goes on without, a line each; `kdns check` collects the errors."""
        ...

    def print_line(self, level: Level, event: str, line: str, facts: Mapping[str, object]) -> None:
        """Write a line of the directive `log` or `errors`, as CoreDNS does; programs may get the event and facts."""
        ...


class Peers(Protocol):
    """Whom a directive asks, follows and tells."""

    def upstream(self, spec: UpstreamSpec) -> Upstream:
        """A server that questions are sent to, until the block ends; InputError for an address or file of no use.

        Blocks with the same specification share sockets and connections.
        """

    def datagram(self, address: HostPort, packet: bytes, timeout_s: float, source: str = "") -> Awaitable[bytes]:
        """The response to a message that is sent over UDP, its id and question checked; UpstreamError for none."""
        ...

    def messages(
        self, address: HostPort, packet: bytes, timeout_s: float, source: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """The messages that come in answer to one over TCP, until the caller stops; UpstreamError where none comes.

        `timeout_s` is for the connection, and for each message. The ids are checked.
        """
        ...

    def cluster(self, source: Source, scope: Scope, changed: OnChange, *, startup_timeout_s: float) -> State:
        """The state of a followed cluster; its server waits so long for the first full list."""
        ...

    def frames(self, spec: FrameSpec, lost: Tally) -> Callable[[bytes], None]:
        """What sends frames to a reader while the block is there; it never blocks, and counts those that are lost."""
        ...

    @property
    def chance(self) -> Chance:
        """Random numbers."""
        ...


class Answers(Protocol):
    """The server block that the directive is in, and its answers."""

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones of the server block."""
        ...

    @property
    def own_addresses(self) -> tuple[bytes, ...]:
        """The packed addresses that the block listens on; all of the machine's where it listens everywhere."""
        ...

    @property
    def hostname(self) -> str:
        """The name of this machine, of the Pod in a cluster."""
        ...

    def plugins(self) -> tuple[Plugin, ...]:
        """The plugins of the server block, in the chain's order; () until all are built."""
        ...

    def resolve(self, request: Request) -> Reply | Awaitable[Reply]:
        """What the whole server replies to a question of a directive's own: any block may answer it.

        SERVFAIL before the server listens, and where one question led to another too often.
        """
        ...

    def forget(self, subjects: Iterable[Subject]) -> None:
        """Drop the answers that depend on these from the tables in front of the chain."""
        ...

    def settle(self, subject: Subject) -> None:
        """Count the uses of the answers that depend on this one in their tallies, up to now."""
        ...

    def readiness(self, name: str, is_ready: Callable[[], bool]) -> None:
        """The server block is ready only when this directive is."""
        ...


class Setup(Clock, Tasks, Files, Metrics, EventLog, Peers, Answers, Protocol):
    """All that directives are given when they are built; each names those of the seven that it uses.

    What is requested here starts with the server and ends with the server block.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Directive(Generic[Config, Given]):
    """One directive.

    `parse` reads a stanza, given the zones of its server block, or raises CorefileError. What counts of
    them is one configuration, with Repeat.ADD all of them in a tuple: `build` makes the plugin of it, `sets_up` the
    options of the server block.
    `options` are the names of the options in its block. `is_listed` says whether coredns_plugin_enabled names it.
    `warnings` are what of a configuration cannot work, and is no reason not to start.
    What server blocks at one address have to agree about: `hosts_of` gives the addresses and interfaces that the
    configurations listen on instead of everywhere, `is_certificate` says that they are a certificate of listeners, and
    `is_view` that the block is for some queries only, so that other blocks may have the same zones.
    """

    name: str
    parse: Callable[[Stanza, tuple[str, ...]], Config]
    build: Callable[[Given, Setup], Plugin] | None = None
    repeat: Repeat = Repeat.ERROR
    options: Collection[str] = ()
    sets_up: Callable[[BlockOptions, Given], BlockOptions] | None = None
    is_listed: bool = True
    warnings: Callable[[Config], Iterable[CorefileError]] = lambda _: ()
    hosts_of: Callable[[tuple[Config, ...]], tuple[str, ...]] | None = None
    is_certificate: bool = False
    is_view: bool = False


Row: TypeAlias = Directive[Any, Any]
