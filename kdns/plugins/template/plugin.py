"""template CLASS TYPE [ZONE…] { match | answer | additional | authority | rcode | … }: answers written as Go templates.

Differs: `cache` keeps no answer that depends on the client; CoreDNS gives it to all clients.
Differs: a template that gives nothing gives no record, where CoreDNS fails.
Differs: where the target of a CNAME does not exist the answer is NXDOMAIN (RFC 6604 §3), in CoreDNS NOERROR.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from typing import Final, NamedTuple

from kdns.dns.names import Labels, folded, is_below, labels_of
from kdns.dns.query import AA, CD, RD, TC, Query
from kdns.dns.response import NEVER, PRIVATE, Response, Reuse, Tally
from kdns.dns.rrset import RRset
from kdns.dns.types import ANY, CNAME, NOERROR, NXDOMAIN, SERVFAIL, class_name, type_label, type_name
from kdns.dns.wire import from_wire
from kdns.net import without_zone
from kdns.plugins.chain import Plugin, Reply, Request, Sees, Serve, then
from kdns.plugins.directive import Counters, Directive, Repeat, Setup
from kdns.plugins.expressions.functions import Environment
from kdns.plugins.expressions.values import EvaluationError
from kdns.plugins.patterns import Match
from kdns.plugins.template.config import OPTIONS, Section, TemplateConfig, parse
from kdns.plugins.template.gofunctions import Map, Struct, Value
from kdns.plugins.template.gotemplate import Template

DEFAULT_TTL_S: Final = 3600
MAX_CACHED: Final = 1024
MAX_CACHED_CHARS: Final = 512
CLASS_ANY: Final = 255
PLACE: Final = ("server", "zone", "view", "class", "type")


class Subject(NamedTuple):
    """What a template is filled in with: a query in a zone, the texts of its pattern's groups, and variables."""

    request: Request
    zone: str
    match: tuple[str, ...]
    groups: Mapping[str, str]
    variables: Mapping[str, Value]


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


FIELDS: Final[dict[str, Callable[[Subject], Value]]] = {
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
"""The fields of a template's data."""
OF_PACKET: Final = frozenset(("Class", "Group", "Match", "Name", "Type", "Var", "Zone"))
"""Those that depend on nothing but the packet."""


@dataclass(frozen=True, slots=True, eq=False)
class Stencil:
    """One stanza, ready for questions: its zones, closest first, and the fields that its templates read.

    `is_of_packet` and `is_condition_of_packet` say that its records, and whether it applies, depend on the packet only.
    """

    config: TemplateConfig
    zones: tuple[tuple[str, Labels], ...] = field(default=())
    fallthrough: tuple[Labels, ...] = field(default=())
    fields: tuple[str, ...] = ()
    is_condition_of_packet: bool = True
    is_of_packet: bool = True

    def zone_of(self, query: Query) -> str:
        """The zone in which the stanza is about a question, "" where it is not."""
        config = self.config
        if config.qclass not in {CLASS_ANY, query.qclass} and query.qclass != CLASS_ANY:
            return ""
        if config.qtype not in {ANY, query.qtype} and query.qtype != ANY:
            return ""
        return next((zone for zone, labels in self.zones if is_below(query.labels, labels)), "")

    def subject(self, request: Request, zone: str) -> Subject | None:
        """What to fill in for a question in a zone; None where it does not match.

        EvaluationError where an expression fails.
        """
        texts: tuple[str, ...] = ()
        groups: dict[str, str] = {}
        if self.config.patterns:
            name = request.query.name
            match = next((found for pattern in self.config.patterns if (found := pattern.search(name))), None)
            if match is None:
                return None
            texts = (match.group(0), *(text or "" for text in match.groups()))
            groups = _groups(match, texts)
        else:
            texts = (request.query.name,)
            groups = {"0": texts[0]}
        variables: dict[str, Value] = {}
        environment = Environment(request, groups, variables)
        for name, value in self.config.variables:
            variables[name] = value.value(environment)
        if not all(condition.value(environment) is True for condition in self.config.conditions):
            return None
        return Subject(request, zone, texts, groups, variables)

    def data(self, subject: Subject) -> Struct:
        """The data of its templates: the fields that they read."""
        return Struct({name: FIELDS[name](subject) for name in self.fields})


def _groups(match: Match, texts: tuple[str, ...]) -> dict[str, str]:
    """The texts of groups by number and by name."""
    by_number = {str(index): text for index, text in enumerate(texts)}
    return by_number | {name: text or "" for name, text in match.groupdict().items()}


def stencil_of(config: TemplateConfig) -> Stencil:
    """A stanza, ready for questions."""
    named = frozenset[str]().union(*(template.fields for _, template in config.records))
    fields = tuple(FIELDS) if "." in named else tuple(name for name in FIELDS if name in named)
    zones = sorted(((zone, labels_of(zone)) for zone in config.zones), key=lambda pair: -len(pair[1]))
    expressions = (*(value for _, value in config.variables), *config.conditions)
    is_condition_of_packet = all(each.is_of_packet for each in expressions)
    return Stencil(
        config,
        tuple(zones),
        tuple(map(labels_of, config.fallthrough)),
        fields,
        is_condition_of_packet,
        is_condition_of_packet and OF_PACKET.issuperset(fields),
    )


class RecordError(ValueError):
    """A template of a section that failed, or that did not give a record."""

    def __init__(self, reason: str, section: Section, template: Template, *, is_record: bool) -> None:
        super().__init__(reason)
        self.section = section
        self.template = template
        self.is_record = is_record


class TemplatePlugin(Plugin):
    """Answers with the records of the first stanza that matches a question.

    The answers of a stanza that reads the client, the message or metadata are for one query only, also with `cache`.
    """

    sees = Sees.PACKET

    def __init__(self, configs: tuple[TemplateConfig, ...], setup: Setup) -> None:
        self._stencils = tuple(map(stencil_of, configs))
        self._setup = setup
        text = "Counter of template regex matches."
        self._matches = setup.counters("coredns_template_matches", text, PLACE)
        labels = (*PLACE, "section", "template")
        text = "Counter of go template failures."
        self._template_failures = setup.counters("coredns_template_template_failures", text, labels)
        text = "Counter of mis-templated RRs."
        self._rr_failures = setup.counters("coredns_template_rr_failures", text, labels)

    def serve(self, request: Request, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - as in Plugin
        """The answer of a stanza, SERVFAIL where one is about the question and does not match, or the next reply."""
        is_of_packet = True
        for stencil in self._stencils:
            zone = stencil.zone_of(request.query)
            if not zone:
                continue
            is_of_packet = is_of_packet and stencil.is_condition_of_packet
            reuse = Reuse() if is_of_packet and stencil.is_of_packet else PRIVATE
            try:
                subject = stencil.subject(request, zone)
            except EvaluationError as error:
                return Response(SERVFAIL, plugin="template", reuse=reuse, error=str(error))
            if subject is not None:
                return self._answer(stencil, subject, reuse)
            if not any(is_below(request.query.labels, labels) for labels in stencil.fallthrough):
                reuse = Reuse() if is_of_packet else PRIVATE
                return Response(SERVFAIL, plugin="template", reuse=reuse, error="no template matches")
        reply = next(request)
        return reply if is_of_packet else then(reply, _for_one_client)

    def _answer(self, stencil: Stencil, subject: Subject, reuse: Reuse) -> Reply | Awaitable[Reply]:
        config, request = stencil.config, subject.request
        matches = self._tally(self._matches, subject)
        options = (config.extended_error,) if config.extended_error else ()
        if config.rcode == SERVFAIL:
            return Response(SERVFAIL, plugin="template", reuse=reuse, options=options, tallies=(matches,))
        sections: dict[Section, list[RRset]] = {"answer": [], "authority": [], "additional": []}
        try:
            for section, rrset in _records(stencil, subject):
                sections[section].append(rrset)
        except RecordError as error:
            family = self._rr_failures if error.is_record else self._template_failures
            failures = self._tally(family, subject, error.section, error.template.source)
            tallies = (matches, failures)
            return Response(SERVFAIL, plugin="template", reuse=reuse, tallies=tallies, error=str(error))
        response = Response(
            config.rcode,
            AA,
            tuple(sections["answer"]),
            tuple(sections["authority"]),
            tuple(sections["additional"]),
            reuse=reuse,
            plugin="template",
            options=options,
            tallies=(matches,),
        )
        if request.query.qtype == CNAME:
            return response
        owners = {folded(rrset.owner) for rrset in response.answer}
        targets = [str(rrset.rdata[0]) for rrset in response.answer if rrset.rtype == CNAME]
        open_ended = [target for target in targets if folded(target) not in owners]
        return self._completed(request, response, open_ended[-1]) if open_ended else response

    def _tally(self, family: Counters, subject: Subject, *more: str) -> Tally:
        """The counter of a question, in classes and types that clients do not make up."""
        request = subject.request
        qclass = class_name(request.query.qclass)
        known = "other" if qclass.startswith("CLASS") else qclass
        return family.tally(request.server, subject.zone, request.view, known, type_label(request.query.qtype), *more)

    def _completed(self, request: Request, response: Response, target: str) -> Reply | Awaitable[Reply]:
        """The answer with what the whole server has for the name that its CNAMEs end in.

        There is one such name, so that templates which lead to each other make a line of questions and no tree.
        """
        try:
            asked = request.about(labels_of(target))
        except ValueError:
            return response
        return then(self._setup.resolve(asked), partial(_joined, response))


def _records(stencil: Stencil, subject: Subject) -> list[tuple[Section, RRset]]:
    """The records of all sections; RecordError for what is none."""
    data = stencil.data(subject)
    records: list[tuple[Section, RRset]] = []
    for section, template in stencil.config.records:
        try:
            text = template.run(data).strip()
        except EvaluationError as error:
            raise RecordError(f"{section}: {error}", section, template, is_record=False) from error
        if text:
            try:
                records.append((section, _record(text) if len(text) <= MAX_CACHED_CHARS else _record.__wrapped__(text)))
            except ValueError as error:
                raise RecordError(f"{section}: {error}", section, template, is_record=True) from error
    return records


@lru_cache(MAX_CACHED)
def _record(text: str) -> RRset:
    """The record of a text. What depends on the client is made again and again, of few texts as a rule."""
    from kdns.dns.zonefile import parse_record  # noqa: PLC0415 - imported by `build`

    return parse_record(text, default_ttl_s=DEFAULT_TTL_S)


def _joined(response: Response, reply: Reply) -> Response:
    if reply is None:
        return response._replace(reuse=response.reuse.and_then(NEVER))
    if reply.wire:
        reply = from_wire(reply)
    if reply.aged_from_s is not None:
        reply = reply._replace(reuse=NEVER)
    is_absent = reply.rcode == NXDOMAIN and response.rcode == NOERROR
    return response._replace(
        rcode=NXDOMAIN if is_absent else response.rcode,
        answer=(*response.answer, *reply.answer),
        flags=response.flags | (reply.flags & TC),
        reuse=response.reuse.and_then(reply.reuse),
        tallies=(*response.tallies, *reply.tallies),
    )


def _for_one_client(reply: Reply) -> Reply:
    return reply and reply._replace(reuse=PRIVATE)


def build(configs: tuple[TemplateConfig, ...], setup: Setup) -> TemplatePlugin:
    """The plugin for all stanzas of a server block. The reader of records is imported before the first query."""
    import_module("kdns.dns.zonefile")
    return TemplatePlugin(configs, setup)


DIRECTIVE: Final = Directive("template", parse, build, Repeat.ADD, options=OPTIONS)
