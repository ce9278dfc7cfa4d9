"""The rules of `rewrite`: the queries to which a rule applies, and its changes of the query and of its answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kdns.answers.chain import Request
from kdns.dns.names import Labels, labels_of
from kdns.plugins.changes.rewrite.answers import Change, RenameRecords, by_pattern, by_suffix
from kdns.plugins.changes.rewrite.patterns import NamePattern, suffix_pattern
from kdns.values import evolve


class RuleResult(NamedTuple):
    """The result of a rule: the next one, and the changes to its answer, in order.

    `is_of_packet` says that both depend on nothing but the packet.
    """

    request: Request
    changes: tuple[Change, ...] = ()
    is_of_packet: bool = True


class Rule(ABC):
    """One rule. `reads_client`: it uses more than the packet, also when it does not apply."""

    reads_client: bool = False

    @abstractmethod
    def apply(self, request: Request, name: str, /) -> RuleResult | None:
        """Returns the result for a query about this name, None where the rule does not concern it.

        ValueError if the name is not a domain name.
        """


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
    """Replaces names that match.

    With `auto` the answer gets the first name again, and so do names below it; for a suffix, all names with the new
    suffix.
    """

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
    """Changes the answers to queries for names that match, without a pattern for all names."""

    pattern: NamePattern | None
    change: Change

    def apply(self, request: Request, name: str, /) -> RuleResult | None:
        if self.pattern is None or self.pattern.replaced(name) is not None:
            return RuleResult(request, (self.change,))
        return None


def restored_suffix(pattern: NamePattern) -> Change:
    return RenameRecords(by_pattern(suffix_pattern(pattern.to, pattern.text)))
