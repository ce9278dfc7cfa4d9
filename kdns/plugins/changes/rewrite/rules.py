"""The rules of `rewrite`: the queries that a rule applies to, and its changes of query and answer.

`append` of constant data always adds an option; of a variable or the subnet only if there is none, as in CoreDNS.
Differs: a client that sent no OPT gets none (RFC 6891 §7); CoreDNS answers with an OPT of 4096 bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address, ip_network
from struct import pack
from typing import Final, Literal, NamedTuple, TypeAlias

from kdns.answers.answer import MAX_UDP_BYTES
from kdns.answers.chain import Request
from kdns.dns.names import Labels, labels_of
from kdns.dns.query import Edns
from kdns.net import packed, without_zone
from kdns.plugins.changes.rewrite.answers import Change, RenameRecords, by_pattern, by_suffix
from kdns.plugins.changes.rewrite.patterns import NamePattern, suffix_pattern
from kdns.values import evolve

Action: TypeAlias = Literal["set", "append", "replace", "unset"]
ACTIONS: Final[dict[str, Action]] = {"set": "set", "append": "append", "replace": "replace", "unset": "unset"}
Value: TypeAlias = Callable[[Request], bytes]
"""The data of an option for a query; b"" if a variable is missing."""

NEW_EDNS: Final = Edns(MAX_UDP_BYTES, do=False, version=0)


def _port(number: int) -> bytes:
    return pack("!H", number)


VARIABLES: Final[dict[str, Value]] = {
    "{qname}": lambda request: request.query.name.encode("latin-1"),
    "{qtype}": lambda request: _port(request.query.qtype),
    "{client_ip}": lambda request: packed(without_zone(request.client[0])),
    "{client_port}": lambda request: _port(request.client[1]),
    "{protocol}": lambda request: request.transport.encode("ascii"),
    "{server_ip}": lambda request: packed(without_zone(request.local)),
    "{server_port}": lambda request: _port(request.local_port),
}
OF_PACKET: Final = frozenset(("{qname}", "{qtype}"))


def metadata_value(label: str) -> Value:
    return lambda request: request.metadata.get(label, "").encode("utf-8")


def subnet_value(ipv4_bits: int, ipv6_bits: int) -> Value:
    """The client's network (RFC 7871 §6)."""

    def value(request: Request) -> bytes:
        try:
            address = ip_address(without_zone(request.client[0]))
        except ValueError:
            return b""
        is_ipv4 = isinstance(address, IPv4Address)
        bits = ipv4_bits if is_ipv4 else ipv6_bits
        network = ip_network((address, bits), strict=False).network_address.packed
        return pack("!HBB", 1 if is_ipv4 else 2, bits, 0) + network[: (bits + 7) // 8]

    return value


class RuleResult(NamedTuple):
    """The changed request, and the changes of its answer in order; `is_of_packet`: they depend on the packet only."""

    request: Request
    changes: tuple[Change, ...] = ()
    is_of_packet: bool = True


class Rule(ABC):
    """One rule. `reads_client`: whether it applies depends on more than the packet."""

    reads_client: bool = False

    @abstractmethod
    def apply(self, request: Request, name: str, /) -> RuleResult | None:
        """None if the rule does not apply; ValueError if the new name is not a domain name."""


class Step(NamedTuple):
    """A rule, and whether later rules are skipped if it applies."""

    rule: Rule
    stops: bool


@dataclass(frozen=True, slots=True)
class NumberRule(Rule):
    """Replaces one type or class by another."""

    field: Literal["qtype", "qclass"]
    number: int
    to: int

    def apply(self, request: Request, _name: str, /) -> RuleResult | None:
        query = request.query
        if getattr(query, self.field) != self.number:
            return None
        changed = query.changed(qtype=self.to) if self.field == "qtype" else query.changed(qclass=self.to)
        return RuleResult(evolve(request, query=changed))


@dataclass(frozen=True, slots=True)
class ExactNameRule(Rule):
    """Replaces one name by another, and restores it in the answer."""

    labels: Labels
    to: Labels
    answers: tuple[Change, ...] = ()

    def apply(self, request: Request, _name: str, /) -> RuleResult | None:
        if request.query.labels != self.labels:
            return None
        return RuleResult(request.about(self.to), (RenameRecords(by_suffix(self.to, self.labels)), *self.answers))


@dataclass(frozen=True, slots=True)
class NameRule(Rule):
    """Replaces names that match; with `auto`, the answer gets the original name back, also in names below it."""

    pattern: NamePattern
    auto: bool = False
    answers: tuple[Change, ...] = ()

    def apply(self, request: Request, name: str, /) -> RuleResult | None:
        replaced = self.pattern.replaced(name)
        if replaced is None:
            return None
        changed = request.about(labels_of(replaced))
        if not self.auto:
            return RuleResult(changed, self.answers)
        restored = RenameRecords(by_suffix(changed.query.labels, request.query.labels))
        return RuleResult(changed, (restored, *self.answers))


@dataclass(frozen=True, slots=True)
class AnswerRule(Rule):
    """Changes the answers to queries for names that match; without a pattern, for all names."""

    pattern: NamePattern | None
    change: Change

    def apply(self, request: Request, name: str, /) -> RuleResult | None:
        if self.pattern is None or self.pattern.replaced(name) is not None:
            return RuleResult(request, (self.change,))
        return None


@dataclass(frozen=True, slots=True)
class OptionRule(Rule):
    """Sets, appends, replaces or removes an option of a query; `reverts` are its changes of the answer.

    `needs_value`: the value is a variable, which may be missing.
    """

    code: int
    action: Action
    value: Value
    reads_client: bool = False
    needs_value: bool = False
    reverts: tuple[Change, ...] = ()

    def apply(self, request: Request, _name: str, /) -> RuleResult | None:
        """Other options keep their positions."""
        query = request.query
        edns = query.edns
        has_option = edns is not None and any(code == self.code for code, _ in edns.options)
        if self.action == "unset":
            if edns is None or not has_option:
                return None
            return self._outcome(request, edns, tuple(option for option in edns.options if option[0] != self.code))
        data = self.value(request)
        if self.needs_value and not data:
            return None
        edns = edns or NEW_EDNS
        if self.action == "append" and has_option and self.needs_value:
            return None
        if self.action == "append" or (self.action == "set" and not has_option):
            return self._outcome(request, edns, (*edns.options, (self.code, data)))
        if has_option:
            options = tuple((code, data if code == self.code else old) for code, old in edns.options)
            return self._outcome(request, edns, options)
        return None

    def _outcome(self, request: Request, edns: Edns, options: tuple[tuple[int, bytes], ...]) -> RuleResult:
        query = request.query.changed(edns=edns._replace(options=options))
        own = (*(option for option in request.options if option[0] != self.code), *_of_code(self.code, options))
        return RuleResult(evolve(request, query=query, options=own), self.reverts, not self.reads_client)


def _of_code(code: int, options: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    return (option for option in options if option[0] == code)


def restored_suffix(pattern: NamePattern) -> Change:
    return RenameRecords(by_pattern(suffix_pattern(pattern.to, pattern.text)))
