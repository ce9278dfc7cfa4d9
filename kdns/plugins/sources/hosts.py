"""hosts [FILE [ZONES…]] { entries and options }: names and addresses of a file such as /etc/hosts, and of the block.

Differs: without `fallthrough`, the apex and empty non-terminals are NODATA (RFC 8020); CoreDNS answers SERVFAIL, as for
any missing name.
Differs: a wildcard does not match a name that has an entry, whatever its family (RFC 4592 §2.2.1).
Differs: ANY returns the addresses (RFC 8482 §4.1); CoreDNS answers NODATA.
Differs: a directory as FILE is an error; CoreDNS ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv6Address, ip_address
from typing import Final

from kdns.answers.chain import NOT_SERVED, UNANSWERED, Plugin, Request, Sees, Serve, ServeResult
from kdns.answers.response import EVERYTHING, Response, Reuse
from kdns.corefile.address import all_zones
from kdns.corefile.lines import Line, Stanza
from kdns.dns.names import Labels, ZoneSet, encode_name, labels_of, lowered, reversed_address, text_of
from kdns.dns.query import AA
from kdns.dns.rrset import RRset
from kdns.dns.types import AAAA, ANY, IN, NOERROR, PTR, TRANSFERS, A, address_type
from kdns.errors import DoubtfulError
from kdns.plugins.directives import FOLDERS
from kdns.serverblocks.directive import Directive, Sample, World
from kdns.serverblocks.stanza import (
    FALLTHROUGH,
    Option,
    UnknownOptionError,
    configured,
    duration_s,
    flag,
    integer,
    path_of,
    sets,
)
from kdns.spelling import closest
from kdns.values import evolve

NAME: Final = "hosts"
DEFAULT_PATH: Final = "/etc/hosts"
MAX_TTL_S: Final = 65535
EXACT: Final = Reuse()
"""Answers are valid until the file changes, which drops all of them."""
WILDCARD: Final = b"*"
MAX_RECORDS: Final = 1000
"""The most addresses of a name and type, and names of an address; more would not fit into an answer."""

_SERVED: Final = frozenset((A, AAAA, PTR, ANY))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a packed address and its names, as written and with a trailing dot."""

    address: bytes
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HostsConfig:
    """`inline` are the entries of the block. The file is checked every `reload_s` seconds, 0: never.

    Missing names in the zones of `fallthrough` go to the next directive; with `fallthrough_unsupported` also existing
    names for types other than A, AAAA and PTR.
    """

    zones: tuple[str, ...]
    path: str = DEFAULT_PATH
    inline: tuple[Entry, ...] = ()
    ttl_s: int = 3600
    has_reverse: bool = True
    reload_s: float = 5.0
    fallthrough: tuple[str, ...] = ()
    fallthrough_unsupported: bool = False
    mistakes: tuple[DoubtfulError, ...] = ()
    """In lines of the block, which are ignored."""


OPTIONS: Final = {
    "ttl": Option("ttl SECONDS", sets("ttl_s", integer, 1, MAX_TTL_S)),
    "no_reverse": Option("no_reverse", flag("has_reverse", to=False)),
    "reload": Option("reload DURATION", sets("reload_s", duration_s)),
    "fallthrough": FALLTHROUGH,
    "fallthrough_unsupported": Option("fallthrough_unsupported", flag("fallthrough_unsupported")),
}


def parse(stanza: Stanza, zones: tuple[str, ...]) -> HostsConfig:
    config = HostsConfig(all_zones(stanza.args[1:]) or zones)
    if stanza.args:
        config = replace(config, path=path_of(stanza.args[0]))
    for line in stanza.block:
        if line.name in OPTIONS:
            config = configured(config, replace(stanza, block=(line,)), OPTIONS)
            continue
        text = " ".join(word.text for word in line.words)
        if config.fallthrough:
            if _address_in(text.split()):
                raise line.error("expected entries before `fallthrough`")
            raise UnknownOptionError(line, OPTIONS)
        inline, mistakes = (*config.inline, *read_entries(text)), (*config.mistakes, *_ignored(line, text))
        config = replace(config, inline=inline, mistakes=mistakes)
    if config.fallthrough_unsupported and not config.fallthrough:
        wrong = next(line for line in stanza.block if line.name == "fallthrough_unsupported")
        raise wrong.error("`fallthrough_unsupported` has no effect without `fallthrough`")
    return config


def _address(text: str) -> bytes | None:
    """Packed, without the zone of an IPv6 address; an IPv4-mapped address becomes IPv4."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).packed


def _name(text: str) -> str | None:
    try:
        encode_name(labels_of(text))
    except ValueError:
        return None
    return text if text.endswith(".") else f"{text}."


def read_entries(text: str) -> Iterator[Entry]:
    """The entries of a hosts(5) file, without invalid lines and names."""
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        address = _address(words[0]) if len(words) > 1 else None
        if address is not None:
            yield Entry(address, tuple(name for name in map(_name, words[1:]) if name))


def left_out(text: str) -> Iterator[tuple[int, str, str]]:
    """Lines (from 1) of a hosts file with invalid entries or names: the wrong word, and the reason."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words and (reason := _no_entry(words)):
            yield number, words[0], f"{reason}; the line is ignored"
        elif words:
            yield from (
                (number, word, f"expected a host name, got {word!r}; this word is ignored")
                for word in words[1:]
                if not _name(word)
            )


def _no_entry(words: Sequence[str]) -> str:
    """Why the words of a line are no entry, with what was probably meant; "" for an entry."""
    first = words[0]
    if _address(first) is not None:
        return "" if len(words) > 1 else f"expected a name after {first}"
    if address := _address_in(words[1:]):
        names = [word for word in words if word != address]
        return f"the address comes first: `{' '.join((address, *names))}`"
    bare = first.partition("/")[0].rstrip(",;")
    if bare != first and _address(bare) is not None:
        return f"expected ADDRESS NAME..., got {first!r}; write the address as {bare}"
    return f"expected ADDRESS NAME..., got {first!r}"


def _address_in(words: Iterable[str]) -> str:
    return next((word for word in words if _address(word) is not None), "")


def _ignored(line: Line, text: str) -> Iterator[DoubtfulError]:
    """The mistakes in a line of the block that is not an option."""
    empty = next((word for word in line.words if not word.text), None)
    meant = "" if _address_in(text.split()) else closest(line.name, OPTIONS)
    hint = f"; did you mean the option `{meant}`?" if meant else ""
    if line.name in FOLDERS:
        hint = f"; is a `}}` missing before the directive `{line.name}`?"
    mistakes = left_out(text) if text.strip() else [(1, "", "expected ADDRESS NAME..., got ''; the line is ignored")]
    for _, word, reason in mistakes:
        shown = reason + (hint if word == line.name else "")
        yield DoubtfulError(line.path, line.line, word, empty.error(shown).reason if empty else shown)


class HostTable:
    """Addresses by name and type, and names by address, at most MAX_RECORDS each.

    `parents` are the apexes and the empty non-terminals above the names.
    """

    __slots__ = ("addresses", "names", "parents")

    def __init__(self, entries: Iterable[Entry], zones: Iterable[str], *, has_reverse: bool = True) -> None:
        self.addresses: dict[Labels, dict[int, dict[bytes, None]]] = {}
        self.names: dict[bytes, dict[Labels, str]] = {}
        apexes = ZoneSet(zones)
        self.parents = set(apexes)
        for address, name, labels in _in_order(entries):
            zone = apexes.closest(labels)
            if zone is None:
                continue
            of_type = self.addresses.setdefault(labels, {}).setdefault(address_type(address), {})
            if len(of_type) < MAX_RECORDS:
                of_type[address] = None
            self.parents.update(labels[above:] for above in range(1, len(labels) - len(zone)))
            names = self.names.setdefault(address, {}) if has_reverse else {}
            if len(names) < MAX_RECORDS:
                names.setdefault(labels, name)

    @property
    def size(self) -> int:
        by_name = sum(len(of_type) for by_type in self.addresses.values() for of_type in by_type.values())
        return by_name + sum(map(len, self.names.values()))

    def by_type(self, labels: Labels) -> dict[int, dict[bytes, None]] | None:
        """The addresses of a name, or of its wildcard, which matches one label; None if there is neither."""
        addresses = self.addresses.get(labels)
        if addresses is None and labels not in self.parents:
            addresses = self.addresses.get((WILDCARD, *labels[1:]))
        return addresses

    def has(self, labels: Labels) -> bool:
        return labels in self.parents or self.by_type(labels) is not None or bool(self.names_of(labels))

    def names_of(self, labels: Labels) -> tuple[str, ...]:
        address = reversed_address(labels)
        return tuple(self.names[address].values()) if address in self.names else ()


def _in_order(entries: Iterable[Entry]) -> Iterator[tuple[bytes, str, Labels]]:
    for entry in entries:
        for name in entry.names:
            yield entry.address, name, lowered(labels_of(name))


class Hosts(Plugin):
    """Answers from its HostTable; a changed file drops all answers of the answer table."""

    sees = Sees.PACKET

    def __init__(self, config: HostsConfig, world: World) -> None:
        self._config = config
        self._world = world
        self._zones = ZoneSet(config.zones)
        self._fallthrough = ZoneSet(config.fallthrough)
        self._read_s = 0.0
        self.table = HostTable((), config.zones)
        self._path = world.path(config.path)
        world.watch_file("hosts file", config.path, config.reload_s, self._use, parse=self._read, is_optional=True)
        world.expose(
            "coredns_hosts_entries", "Addresses of names, and names of addresses.", ("hostsfile",), self._entries
        )
        world.expose(
            "coredns_hosts_reload_timestamp_seconds", "Time at which the hosts file was read.", (), self._timestamp
        )

    def _read(self, text: str) -> tuple[HostTable, list[DoubtfulError]]:
        """The table of the file's entries and then the block's, and the mistakes in ignored lines.

        Takes a second for 100,000 lines. Mistakes in DEFAULT_PATH are not reported: it belongs to the machine.
        """
        config = self._config
        table = HostTable((*read_entries(text), *config.inline), config.zones, has_reverse=config.has_reverse)
        lines = () if config.path == DEFAULT_PATH else left_out(text)
        return table, [DoubtfulError(self._path, line, "", reason) for line, _, reason in lines]

    def _use(self, read: tuple[HostTable, list[DoubtfulError]]) -> None:
        self.table, mistakes = read
        if mistakes:
            self._world.report("hosts line ignored", mistakes)
        self._read_s = self._world.unix_s()
        self._world.forget((EVERYTHING,))

    def _entries(self) -> Iterable[Sample]:
        return [((self._config.path,), self.table.size)]

    def _timestamp(self) -> Iterable[Sample]:
        return [((), self._read_s)]

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        """Names must be in the zones, but addresses are looked up in any zone: reverse zones need not be listed.

        A missing PTR always falls through. Other classes are REFUSED for existing names, which are not for upstreams.
        """
        query = request.query
        qtype, labels = query.qtype, query.labels
        if qtype in TRANSFERS:
            return next(request)
        if query.qclass != IN:
            return NOT_SERVED if labels in self._zones and self.table.has(labels) else next(request)
        names = self.table.names_of(labels) if qtype in {PTR, ANY} else ()
        if names:
            return self._response((RRset(query.name, PTR, self._config.ttl_s, names),))
        if labels not in self._zones or (qtype == PTR and reversed_address(labels)):
            return next(request)
        falls_through = labels in self._fallthrough
        by_type = self.table.by_type(labels)
        if by_type is None:
            if falls_through and not self.table.names_of(labels):
                return next(request)
            return self._response(()) if self.table.has(labels) else UNANSWERED
        if falls_through and self._config.fallthrough_unsupported and qtype not in _SERVED:
            return next(request)
        selected = by_type if qtype == ANY else {qtype: by_type[qtype]} if qtype in by_type else {}
        ttl_s = self._config.ttl_s
        rrsets = (RRset(query.name, rtype, ttl_s, tuple(addresses)) for rtype, addresses in selected.items())
        response = self._response(tuple(rrsets))
        if labels in self.table.addresses:
            return response
        return evolve(response, wildcard=text_of((WILDCARD, *labels[1:])))

    def _response(self, answer: tuple[RRset, ...]) -> Response:
        return Response(NOERROR, AA, answer, reuse=EXACT, plugin=NAME)


DIRECTIVE: Final = Directive(
    "hosts [FILE [ZONES...]]",
    HostsConfig,
    Hosts,
    OPTIONS,
    parse=parse,
    warnings=lambda config: config.mistakes,
    warned="hosts line ignored",
)
