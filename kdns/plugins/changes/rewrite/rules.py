"""The rules of `rewrite`: the queries to which a rule applies, and its changes of the query and of its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kdns.answers.chain import Request
from kdns.dns.names import Labels, labels_of
from kdns.plugins.changes.rewrite.answers import Change, RenameRecords, by_pattern, by_suffix
from kdns.plugins.changes.rewrite.patterns import NamePattern
from kdns.values import evolve


class RuleResult(NamedTuple):
    """The result of a rule: the next one, and the changes to its answer, in order.

    `is_of_packet` says that both depend on nothing but the packet.
    """

    request: Request
    changes: tuple[Change, ...] = ()
    is_of_packet: bool = True


class Rule(Protocol):
    """One rule. `reads_client`: it uses more than the packet, also when it does not apply."""

    @property
    def reads_client(self) -> bool: ...

    def apply(self, request: Request, name: str) -> RuleResult | None:
        """Returns the result for a query about this name, None where the rule does not concern it.

        ValueError if the name is not a domain name.
        """
        ...


class Step(NamedTuple):
    """A rule, and whether later rules are skipped if it applies."""

    rule: Rule
    stops: bool


@dataclass(frozen=True, slots=True)
class TypeRule:
    """Replaces one type by another."""

    qtype: int
    to: int
    reads_client: bool = False

    def apply(self, request: Request, name: str) -> RuleResult | None:
        del name
        query = request.query
        if query.qtype != self.qtype:
            return None
        return RuleResult(evolve(request, query=query.changed(qtype=self.to)))


@dataclass(frozen=True, slots=True)
class ClassRule:
    """Replaces one class by another."""

    qclass: int
    to: int
    reads_client: bool = False

    def apply(self, request: Request, name: str) -> RuleResult | None:
        del name
        query = request.query
        if query.qclass != self.qclass:
            return None
        return RuleResult(evolve(request, query=query.changed(qclass=self.to)))


@dataclass(frozen=True, slots=True)
class ExactNameRule:
    """Replaces one name by another, and restores it in the answer."""

    labels: Labels
    to: Labels
    answers: tuple[Change, ...] = ()
    reads_client: bool = False

    def apply(self, request: Request, name: str) -> RuleResult | None:
        del name
        if request.query.labels != self.labels:
            return None
        return RuleResult(request.about(self.to), (RenameRecords(by_suffix(self.to, self.labels)), *self.answers))


@dataclass(frozen=True, slots=True)
class NameRule:
    """Replaces names that match.

    With `auto` the answer gets the first name again, and so do names below it; for a suffix, all names with the new
    suffix.
    """

    pattern: NamePattern
    auto: bool = False
    answers: tuple[Change, ...] = ()
    reads_client: bool = False

    def apply(self, request: Request, name: str) -> RuleResult | None:
        replaced = self.pattern.replaced(name)
        if replaced is None:
            return None
        labels = labels_of(replaced)
        changed = request.about(labels)
        if not self.auto:
            return RuleResult(changed, self.answers)
        return RuleResult(
            changed, (RenameRecords(by_suffix(changed.query.labels, request.query.labels)), *self.answers)
        )


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """Changes the answers to queries for names that match."""

    pattern: NamePattern | None
    change: Change
    reads_client: bool = False

    def apply(self, request: Request, name: str) -> RuleResult | None:
        """See Rule. Without a pattern it concerns all names."""
        if self.pattern is None or self.pattern.matches(name):
            return RuleResult(request, (self.change,))
        return None


def restored_suffix(suffix: str, to: str) -> Change:
    """Returns a rewrite of names that end in `to`, which end in `suffix` again."""
    back = NamePattern("suffix", to, suffix, lambda name: name.endswith(to), lambda name: _resuffixed(name, to, suffix))
    return RenameRecords(by_pattern(back))


def _resuffixed(name: str, suffix: str, to: str) -> str | None:
    return name[: -len(suffix)] + to if name.endswith(suffix) else None
