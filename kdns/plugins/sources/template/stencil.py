"""A compiled stanza of `template`: whether it matches a question, and the data for its templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kdns.answers.chain import Request
from kdns.dns.names import ZoneSet, text_of
from kdns.dns.query import CD, RD, Query
from kdns.dns.types import ANY, class_name, type_name
from kdns.net import without_zone
from kdns.plugins.sources.template.config import TemplateConfig
from kdns.plugins.sources.template.gofunctions import GoValue, Map, Struct
from kdns.serverblocks.expressions.functions import Environment

CLASS_ANY: Final = 255


class Subject(NamedTuple):
    """The data of a template: a query in a zone, the texts of its pattern's groups, and variables."""

    request: Request
    zone: str
    match: tuple[str, ...]
    groups: Mapping[str, str]
    variables: Mapping[str, GoValue]


def _question(subject: Subject) -> Struct:
    query = subject.request.query
    return Struct(Name=query.spelled_name, Qtype=query.qtype, Qclass=query.qclass)


def _message(subject: Subject) -> Struct:
    query = subject.request.query
    return Struct(
        Id=int.from_bytes(query.packet[:2], "big"),
        Response=False,
        Opcode=0,
        Authoritative=False,
        Truncated=False,
        RecursionDesired=bool(query.flags & RD),
        RecursionAvailable=False,
        CheckingDisabled=bool(query.flags & CD),
        Rcode=0,
        Question=(_question(subject),),
    )


def _meta(subject: Subject) -> Callable[[str], str]:
    metadata = subject.request.metadata
    return lambda label: metadata.get(label, "")


FIELDS: Final[dict[str, Callable[[Subject], GoValue]]] = {
    "Class": lambda subject: class_name(subject.request.query.qclass),
    "Group": lambda subject: Map(subject.groups),
    "Match": lambda subject: subject.match,
    "Message": _message,
    "Meta": _meta,
    "Name": lambda subject: subject.request.query.name,
    "Question": _question,
    "Remote": lambda subject: without_zone(subject.request.client[0]),
    "Type": lambda subject: type_name(subject.request.query.qtype),
    "Var": lambda subject: Map(subject.variables, None),
    "Zone": lambda subject: subject.zone,
}
OF_PACKET: Final = frozenset(("Class", "Group", "Match", "Name", "Type", "Var", "Zone"))
"""Fields that depend on the packet only."""


@dataclass(frozen=True, slots=True, eq=False)
class Stencil:
    """One stanza; `fields` are those that its templates read.

    `is_of_packet`: its records depend on the packet only; `is_condition_of_packet`: so does whether it matches.
    """

    config: TemplateConfig
    zones: ZoneSet
    fallthrough: ZoneSet
    fields: tuple[str, ...] = ()
    is_condition_of_packet: bool = True
    is_of_packet: bool = True

    def zone_of(self, query: Query) -> str:
        config = self.config
        if config.qclass not in {CLASS_ANY, query.qclass} and query.qclass != CLASS_ANY:
            return ""
        if config.qtype not in {ANY, query.qtype} and query.qtype != ANY:
            return ""
        zone = self.zones.closest(query.labels)
        return "" if zone is None else text_of(zone)

    def subject(self, request: Request, zone: str) -> Subject | None:
        """None for a question that does not match; EvaluationError if an expression fails."""
        name = request.query.name
        texts: tuple[str, ...] = (name,)
        named: dict[str, str] = {}
        if self.config.patterns:
            match = next(filter(None, (pattern.search(name) for pattern in self.config.patterns)), None)
            if match is None:
                return None
            texts = (match.group(0), *(text or "" for text in match.groups()))
            named = {group: text or "" for group, text in match.groupdict().items()}
        groups = {str(number): text for number, text in enumerate(texts)} | named
        variables: dict[str, GoValue] = {}
        environment = Environment(request, groups, variables)
        for variable, value in self.config.variables:
            variables[variable] = value.value(environment)
        if not all(condition.value(environment) is True for condition in self.config.conditions):
            return None
        return Subject(request, zone, texts, groups, variables)

    def data(self, subject: Subject) -> Struct:
        return Struct({name: FIELDS[name](subject) for name in self.fields})


def stencil_of(config: TemplateConfig) -> Stencil:
    named = frozenset[str]().union(*(template.fields for _, template in config.records))
    fields = tuple(FIELDS) if "." in named else tuple(name for name in FIELDS if name in named)
    expressions = (*(value for _, value in config.variables), *config.conditions)
    is_condition_of_packet = all(expression.is_of_packet for expression in expressions)
    return Stencil(
        config,
        ZoneSet(config.zones),
        ZoneSet(config.fallthrough),
        fields,
        is_condition_of_packet,
        is_condition_of_packet and OF_PACKET.issuperset(fields),
    )
