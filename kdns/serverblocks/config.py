"""Server blocks → configurations of servers, checked for conflicts between blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from ipaddress import ip_address
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kdns.answers.chain import Plugin
from kdns.corefile.address import DEFAULT_PORTS, ZoneAddress
from kdns.corefile.lexer import Token
from kdns.corefile.lines import BracesError, Stanza
from kdns.corefile.parse import ServerBlock
from kdns.errors import CorefileError, InputError
from kdns.net import Address, HostPort, join_host_port, parse_address
from kdns.serverblocks.block_options import DEFAULTS, BlockOptions, Page
from kdns.serverblocks.directive import Directive, Repeat, Row, World
from kdns.serverblocks.hints import directive_as_zone, directive_reason, option_reason
from kdns.serverblocks.listener_options import TLS_USAGE
from kdns.serverblocks.stanza import UnknownOptionError

Config = TypeVar("Config")

WILDCARD: Final = ("0.0.0.0", "::")
"""Every address of the machine, of both families."""
TRANSPORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "dns": ("udp", "tcp"),
    "tls": ("tcp",),
    "https": ("tcp",),
    "quic": ("udp",),
}
"""The served schemes, and the transports of each."""
PAGE_HOSTS: Final = {"": WILDCARD, "localhost": ("127.0.0.1", "::1")}
"""The addresses of an HTTP page whose host is not an IP address; other names are not looked up."""
NEED_TLS: Final = ("tls", "quic")
"""Schemes that need a certificate; https:// may also be behind a proxy that has one."""


class ListenAddress(NamedTuple):
    """Port 0 is any free port."""

    hosts: tuple[str, ...]
    port: int
    scheme: str = "dns"


def label_of(address: ListenAddress) -> str:
    """The address as metrics and logs name it: `dns://:53`, `tls://10.0.0.1:853`."""
    host = "" if address.hosts == WILDCARD else address.hosts[0]
    return f"{address.scheme}://{join_host_port(host, address.port)}"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The configuration of one server block: its valid directives by name, in the chain's order.

    `rows` are all directives of the block in that order, also those with a mistake; `stanzas` are their stanzas.
    `is_whole` is False if a part of the block could not be read.
    """

    path: str
    line: int
    addresses: tuple[ZoneAddress, ...]
    directives: Mapping[str, tuple[object, ...]]
    stanzas: tuple[Stanza, ...] = field(default=(), compare=False, repr=False)
    rows: tuple[Row, ...] = field(default=(), compare=False, repr=False)
    options: BlockOptions = field(default=DEFAULTS, compare=False, repr=False)
    is_whole: bool = field(default=True, compare=False, repr=False)

    @property
    def zones(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(address.zone for address in self.addresses))

    def configs(self, directive: Directive[Config, Any]) -> tuple[Config, ...]:
        """() if the block does not have the directive."""
        return self.directives.get(directive.name, ())  # type: ignore[return-value] # `parse` of that row made them

    def build(self, world: World) -> list[Plugin]:
        plugins = (self.plugin(row, world) for row in self.rows)
        return [plugin for plugin in plugins if plugin is not None]

    def plugin(self, row: Row, world: World) -> Plugin | None:
        """None for a directive without a plugin; raises CorefileError and InputError."""
        configs = self.configs(row)
        if not row.plugin or not configs:
            return None
        for warning in (warning for config in configs if row.warned for warning in row.warnings(config)):
            reason = warning.reason.removeprefix(f"{row.name}: ")
            world.log("warning", row.warned, path=warning.path, line=warning.line, reason=reason)
        try:
            return row.plugin(configs if row.repeat is Repeat.ADD else configs[0], world)
        except CorefileError as error:
            raise error.of(row.name) from error.__cause__

    def is_valid(self, name: str) -> bool:
        return name in self.directives or all(row.name != name for row in self.rows)

    @property
    def bound(self) -> tuple[str, ...]:
        """The addresses and interfaces of `bind`, as written; WILDCARD without it."""
        binds = self.options.binds
        hosts = (host for bind in binds for host in bind.hosts if host not in bind.exclude)
        return tuple(dict.fromkeys(hosts)) if binds else WILDCARD

    @property
    def pages(self) -> Iterator[tuple[Stanza, Page]]:
        for row in self.rows:
            stanza = next(stanza for stanza in reversed(self.stanzas) if stanza.name == row.name)
            yield from ((stanza, config) for config in self.configs(row) if isinstance(config, Page))

    @property
    def has_view(self) -> bool:
        """With a view, other blocks may have the same zones."""
        return "view" in self.directives

    @property
    def is_placed(self) -> bool:
        """Whether `bind` and `view` are known, so that the block can be compared with others."""
        return self.is_whole and all(self.is_valid(name) for name in ("bind", "view"))

    def warnings(self) -> Iterator[CorefileError]:
        """Mistakes that do not prevent a start."""
        for row in self.rows:
            for config in self.configs(row):
                yield from (warning.of(row.name) for warning in row.warnings(config))

    def error(self, reason: str) -> CorefileError:
        return CorefileError(self.path, self.line, "", reason)

    def file_error(self, path: str, reason: str, directive: str = "") -> CorefileError:
        """At the word that names this file or its folder, or else at the directive or server block.

        `path` may begin with the folder `root`.
        """
        file = path.partition(":")[0]  # some paths end in a line number
        paths = f"/{file}/{file.rpartition('.')[0]}/"  # key files have an ending that the Corefile may omit
        words = [
            (word, stanza.name)
            for stanza in self.stanzas
            for line in (stanza, *stanza.block)
            for word in line.args
            if word.text and f"/{word.text}/" in paths
        ]
        at: ServerConfig | Stanza | Token = next((stanza for stanza in self.stanzas if stanza.name == directive), self)
        if words:
            # The longest word that ends the path; that of `root` only if no other directive names the file.
            at, directive = max(
                words, key=lambda pair: (pair[1] != "root", file.endswith(pair[0].text), len(pair[0].text))
            )
        error = CorefileError(at.path, at.line, "", reason)
        return error.of(directive) if directive else error


Mistake = TypeVar("Mistake", bound=InputError)

Listening: TypeAlias = Sequence[tuple[ServerConfig, tuple[str, ...]]]
"""Servers with their addresses, and with names of interfaces that are not resolved yet."""


def server_configs(
    blocks: Iterable[ServerBlock],
    table: Mapping[str, Row],
    *,
    dns_port: int = DEFAULT_PORTS["dns"],
    mistakes: Iterable[CorefileError] = (),
) -> tuple[tuple[ServerConfig, ...], tuple[ServerConfig, ...], list[CorefileError]]:
    """The servers without mistakes, the others without their invalid parts, and every mistake, once.

    Mistakes within blocks come before those between blocks. `table` has the directives by name, in the chain's order.
    `dns_port` is the default of dns://. `mistakes` are those of the grammar and of imports: after them, blocks that
    are not whole are not compared to others; after a BracesError, no blocks are.
    """
    errors = [*mistakes]
    is_certain = not any(isinstance(mistake, BracesError) for mistake in errors)
    is_whole = not errors
    everyone: list[ServerConfig] = []
    wrong: set[int] = set()
    for number, block in enumerate(blocks if is_certain else _server_blocks(blocks, table)):
        before = len(errors)
        everyone.append(server := _server(block, table, errors))
        errors += _unserved(server)
        if len(errors) > before:
            wrong.add(number)
    if is_whole:
        errors += _missing_tls(everyone, dns_port)
    if is_certain:
        errors += clashes([(server, server.bound if server.is_placed else ()) for server in everyone], dns_port)
    servers = tuple(server for number, server in enumerate(everyone) if number not in wrong)
    return servers, tuple(everyone[number] for number in sorted(wrong)), distinct(errors)


def distinct(mistakes: Iterable[Mistake]) -> list[Mistake]:
    """Every block that imports a snippet has the snippet's mistakes; they are reported once."""
    return list({str(mistake): mistake for mistake in mistakes}.values())


def _server_blocks(blocks: Iterable[ServerBlock], table: Mapping[str, Row]) -> Iterator[ServerBlock]:
    """The blocks that begin with zones; the others follow a brace that ended a server block early."""
    for number, block in enumerate(blocks):
        if (block.braces or not number) and not any(
            address.token and address.token.text in table for address in block.addresses
        ):
            yield block


def _unserved(server: ServerConfig) -> Iterator[CorefileError]:
    for address in server.addresses:
        if address.scheme not in TRANSPORTS:
            served = ", ".join(f"{scheme}://" for scheme in TRANSPORTS)
            yield error_at(server, address, f"kdns does not serve {address.scheme}://; it serves {served}")


def _server(block: ServerBlock, table: Mapping[str, Row], errors: list[CorefileError]) -> ServerConfig:
    """Without the invalid parts of the block."""
    if head := directive_as_zone(block, table):
        advice = f"got the directive `{head.text}`; put it into a server block such as `. {{ … }}`"
        errors.append(head.error(f"expected a zone before `{{`, {advice}"))
        block = replace(block, stanzas=(), mistakes=(), is_whole=False)
    errors += _missing_zones(block, table)
    own: list[CorefileError] = []
    zones = tuple(dict.fromkeys(address.zone for address in block.addresses)) or (".",)  # stands in for wrong ones
    stanzas: dict[str, list[Stanza]] = {}
    parsed: dict[str, list[object]] = {}
    for stanza in block.stanzas:
        row = table.get(stanza.name)
        if row is None:
            own.append(stanza.error(directive_reason(stanza, block, table)))
            continue
        earlier = stanzas.setdefault(stanza.name, [])
        if earlier and row.repeat is Repeat.ERROR:
            first = earlier[0]
            is_same = (first.path, first.line) == (stanza.path, stanza.line)
            where = "its snippet or file is imported twice" if is_same else f"first at {first.path}:{first.line}"
            own.append(stanza.error(f"`{stanza.name}` may occur only once in a server block; {where}"))
        earlier.append(stanza)
        try:
            parsed.setdefault(stanza.name, []).append(row.read(stanza, zones))
        except CorefileError as error:
            mistakes = (error, *_further_mistakes(row, stanza, zones, error))
            own += [_explained(mistake, stanza, block, table).of(stanza.name) for mistake in mistakes]
    places = {(mistake.path, mistake.line, mistake.token) for mistake in own}
    errors += [mistake for mistake in block.mistakes if (mistake.path, mistake.line, mistake.token) not in places]
    errors += own
    counting = {
        name: tuple(parsed[name] if table[name].repeat is Repeat.ADD else parsed[name][-1:])
        for name in table
        if parsed.get(name)
    }
    rows = tuple(table[name] for name in table if name in stanzas)
    settings = (row.sets_up(config) for row in rows if row.sets_up for config in counting.get(row.name, ()))
    options = reduce(BlockOptions.joined, settings, DEFAULTS).placed()
    return ServerConfig(block.path, block.line, block.addresses, counting, block.stanzas, rows, options, block.is_whole)


def _explained(mistake: CorefileError, stanza: Stanza, block: ServerBlock, table: Mapping[str, Row]) -> CorefileError:
    if not isinstance(mistake, UnknownOptionError):
        return mistake
    return mistake.option.error(option_reason(mistake, stanza, block, table))


def _further_mistakes(row: Row, stanza: Stanza, zones: tuple[str, ...], error: CorefileError) -> list[CorefileError]:
    """Mistakes in other options of the stanza, which is parsed again without the invalid ones."""
    further: list[CorefileError] = []
    has_example = False
    while stanza.block:
        block = tuple(line for line in stanza.block if (line.path, line.line) != (error.path, error.line))
        if len(block) < len(stanza.block):
            stanza = replace(stanza, block=block)
        elif has_example:
            break  # the mistake is about the whole stanza, which lacks an option by now
        else:
            example = (replace(stanza.words[0], text=word) for word in row.example.split())
            stanza, has_example = replace(stanza, words=(stanza.words[0], *example)), True
        try:
            row.read(stanza, zones)
        except CorefileError as another:
            error = another
            if any((line.path, line.line) == (error.path, error.line) for line in stanza.block):
                further.append(error)
        else:
            break
    return further


def _missing_zones(block: ServerBlock, table: Mapping[str, Row]) -> Iterator[CorefileError]:
    """Directives in place of zones, as in a file that begins with `errors`."""
    for address in block.addresses:
        if not block.braces and address.token and address.token.text in table:
            name = address.token.text
            yield address.token.error(f"expected a zone, got the directive `{name}`; begin with a line such as `.:53`")


def _missing_tls(servers: Iterable[ServerConfig], dns_port: int) -> Iterator[CorefileError]:
    """Schemes of TLS without a certificate in their block, or in another one at the same port."""
    certified = {
        (address.scheme, address.port_or_default(dns_port))
        for server in servers
        if any(row.name == "tls" for row in server.rows)
        for address in server.addresses
    }
    for server in servers:
        for address in server.addresses:
            if address.scheme in NEED_TLS and (address.scheme, address.port_or_default(dns_port)) not in certified:
                yield error_at(
                    server, address, f"{address.scheme}:// needs the directive `tls` in its block: {TLS_USAGE}"
                )


def listen_addresses(listening: Listening, dns_port: int) -> dict[ListenAddress, list[tuple[int, str]]]:
    """Address → number of each server there, with one of its zones."""
    addresses: dict[ListenAddress, list[tuple[int, str]]] = {}
    for number, (server, hosts) in enumerate(listening):
        for address in server.addresses:
            for group in [hosts] if hosts == WILDCARD else [(host,) for host in hosts]:
                listen_address = ListenAddress(group, address.port_or_default(dns_port), address.scheme)
                addresses.setdefault(listen_address, []).append((number, address.zone))
    return addresses


def clashes(listening: Listening, dns_port: int) -> Iterator[CorefileError]:
    """A zone in two blocks at one address, and addresses that exclude each other, also of HTTP pages.

    Port 0 is a different port each time.
    Differs: a block without `bind` and one with `bind` cannot have the same port. CoreDNS allows it by SO_REUSEPORT,
    which also lets another process take a part of the queries.
    """
    overlaps = _overlaps(listening, dns_port)
    yield from overlaps.values()
    addressed = [(server, tuple(host for host in hosts if parse_address(host))) for server, hosts in listening]
    for number, reason in _clashes([server for server, _ in listening], listen_addresses(addressed, dns_port)):
        if number not in overlaps:
            yield listening[number][0].error(reason)
    yield from _page_clashes(addressed, dns_port)


def _page_clashes(listening: Listening, dns_port: int) -> Iterator[CorefileError]:
    """HTTP pages on a port of a server block, or of a page at another address."""
    taken: list[tuple[int, tuple[str, ...], HostPort | None, str]] = [
        (address.port_or_default(dns_port), hosts, None, f"the block at {server.path}:{server.line}")
        for server, hosts in listening
        for address in server.addresses
        if "tcp" in TRANSPORTS.get(address.scheme, ())
    ]
    for stanza, page in (pair for server, _ in listening for pair in server.pages):
        at = page.address
        hosts = PAGE_HOSTS.get(at.host, (at.host,))
        for port, others, address, where in taken:
            if port and port == at.port and address != at and _has_common(hosts, others):
                yield stanza.error(f"cannot listen on {at}: {where} listens on port {port}").of(stanza.name)
                break
        else:
            taken.append((at.port, hosts, at, f"`{stanza.name}` at {stanza.path}:{stanza.line}"))


def _has_common(hosts: Iterable[str], others: Iterable[str]) -> bool:
    """Whether a socket at one of `hosts` excludes one at one of `others`."""
    addresses = [address for host in hosts if (address := parse_address(host))]
    other_addresses = [address for host in others if (address := parse_address(host))]
    return any(
        address == other or (address.version == other.version and (address.is_unspecified or other.is_unspecified))
        for address, other in product(addresses, other_addresses)
    )


def _overlaps(listening: Listening, dns_port: int) -> dict[int, CorefileError]:
    """The first error of each server, by number: only one block without a view may have a zone at an address."""
    is_as_written = all(hosts in ((), server.bound) for server, hosts in listening)
    taken: dict[tuple[str, str, int], dict[str, ServerConfig]] = {}
    errors: dict[int, CorefileError] = {}
    for number, (server, hosts) in enumerate(listening):
        for address in () if server.has_view else server.addresses:
            port = address.port_or_default(dns_port)
            others = taken.setdefault((address.scheme, address.zone, port), {})
            for host in ("",) if hosts == WILDCARD else hosts:
                other = others.get(host) or others.get("") if host else next(iter(others.values()), None)
                if port and other:
                    where = f"port {port}" if is_as_written else f"{host}, port {port},"
                    reason = f"{address.zone} on {where} is already served by the block at {other.path}:{other.line}"
                    error = error_at(server, address, reason) if is_as_written else server.error(reason)
                    errors.setdefault(number, error)
                others.setdefault(host, server)
    return errors


def _clashes(
    servers: Sequence[ServerConfig], addresses: Mapping[ListenAddress, Sequence[tuple[int, str]]]
) -> Iterator[tuple[int, str]]:
    """The numbers of servers that cannot listen beside earlier ones, with the reason."""
    for address, parts in addresses.items():
        if address.scheme != "dns":
            yield from _other_certificates(servers, parts)
    listeners = {address: parts[0][0] for address, parts in addresses.items() if address.port}
    first_at: dict[tuple[int, str, Address | int], tuple[int, ListenAddress]] = {}
    for number, (address, second) in enumerate(listeners.items()):
        hosts = [ip_address(host) for host in address.hosts]
        transports = TRANSPORTS.get(address.scheme, ())
        sockets = [(address.port, transport, host) for transport in transports for host in hosts]
        before = [first_at[key] for socket in sockets for key in _excluding(*socket) if key in first_at]
        for port, transport, host in sockets:
            first_at.setdefault((port, transport, host), (number, address))
            first_at.setdefault((port, transport, host.version), (number, address))
        if before:
            _, other = min(before)
            yield second, _conflict(address, other, servers[listeners[other]])


def _excluding(port: int, transport: str, host: Address) -> Iterator[tuple[int, str, Address | int]]:
    """Keys of sockets that exclude this one; an unspecified address excludes its whole family."""
    if host.is_unspecified:
        yield port, transport, host.version
    else:
        yield port, transport, host
        yield port, transport, ip_address(WILDCARD[host.version == 6])


def _conflict(address: ListenAddress, other: ListenAddress, first: ServerConfig) -> str:
    where = f"which the block at {first.path}:{first.line} listens"
    if address.scheme != other.scheme:
        return f"port {address.port} cannot be shared by {address.scheme}:// and {other.scheme}://, {where} with"
    hosts = f"{_named(address.hosts)} beside {_named(other.hosts)}"
    return f"cannot listen on port {address.port} on {hosts}, {where} on; expected `bind` in both or in neither"


def _other_certificates(servers: Sequence[ServerConfig], parts: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Two certificates at one address: a client would get either of them.

    Differs: CoreDNS uses that of its last block.
    """
    certified = [number for number, _ in parts if servers[number].options.listener.tls]
    for number in certified[1:]:
        first = servers[certified[0]]
        if servers[number].options.listener.tls != first.options.listener.tls:
            where = f"{first.path}:{first.line}"
            yield number, f"`tls` differs from that of the block at {where}, which listens at the same address"


def _named(hosts: Sequence[str]) -> str:
    return hosts[0] if len(hosts) == 1 else "every address"


def error_at(server: ServerConfig, address: ZoneAddress, reason: str) -> CorefileError:
    return address.token.error(reason) if address.token else server.error(reason)
