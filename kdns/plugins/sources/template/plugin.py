"""template CLASS TYPE [ZONE…] { match | answer | additional | authority | rcode | … }: answers from Go templates.

Differs: `cache` does not store answers that depend on the client; CoreDNS gives them to all clients.
Differs: a template with an empty result adds no record; CoreDNS fails.
Differs: if the target of a CNAME does not exist, the answer is NXDOMAIN (RFC 6604 §3); in CoreDNS NOERROR.
"""

from __future__ import annotations

from functools import lru_cache, partial
from importlib import import_module
from typing import Final

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, for_one_client, then
from kdns.answers.decode import from_wire
from kdns.answers.response import PRIVATE, Response, Reuse, counted_down
from kdns.dns.names import folded, labels_of
from kdns.dns.query import AA, TC
from kdns.dns.rrset import RRset
from kdns.dns.types import CNAME, NOERROR, NXDOMAIN, SERVFAIL, class_name, type_label
from kdns.plugins.sources.template.config import OPTIONS, USAGE, Section, TemplateConfig, parse
from kdns.plugins.sources.template.stencil import Stencil, Subject, stencil_of
from kdns.plugins.sources.template.warnings import warnings
from kdns.serverblocks.directive import Counters, Directive, Repeat, World
from kdns.serverblocks.expressions.values import EvaluationError
from kdns.tally import Tally
from kdns.values import evolve

DEFAULT_TTL_S: Final = 3600
MAX_CACHED: Final = 1024
MAX_CACHED_CHARS: Final = 512
LABELS: Final = ("server", "zone", "view", "class", "type")


class TemplatePlugin(Plugin):
    """Answers with the records of the first stanza that matches.

    Answers of a stanza that reads the client, the message or metadata are for one query only, also with `cache`.
    """

    sees = Sees.PACKET

    def __init__(self, configs: tuple[TemplateConfig, ...], world: World) -> None:
        import_module("kdns.dns.zonefile")  # the reader of records, before the first query
        self._stencils = tuple(map(stencil_of, configs))
        self._world = world
        text = "Queries that a template matched."
        self._matches = world.counters("coredns_template_matches", text, LABELS)
        labels = (*LABELS, "section", "template")
        text = "Templates that failed."
        self._template_failures = world.counters("coredns_template_template_failures", text, labels)
        text = "Templates whose text was not a valid record."
        self._rr_failures = world.counters("coredns_template_rr_failures", text, labels)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        """SERVFAIL if a stanza has the zone, class and type of a question but does not match, without fallthrough."""
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
            if request.query.labels not in stencil.fallthrough:
                reuse = Reuse() if is_of_packet else PRIVATE
                return Response(SERVFAIL, plugin="template", reuse=reuse, error="no template matches")
        reply = next(request)
        return reply if is_of_packet else then(reply, for_one_client)

    def _answer(self, stencil: Stencil, subject: Subject, reuse: Reuse) -> ServeResult:
        config, request = stencil.config, subject.request
        matches = self._tally(self._matches, subject)
        options = (config.extended_error,) if config.extended_error else ()
        if config.rcode == SERVFAIL:
            return Response(SERVFAIL, plugin="template", reuse=reuse, options=options, tallies=(matches,))
        sections: dict[Section, list[RRset]] = {"answer": [], "authority": [], "additional": []}
        data = stencil.data(subject)
        for section, template in config.records:
            family = self._template_failures
            try:
                text = template.run(data).strip()
                family = self._rr_failures
                if text:
                    record = _record if len(text) <= MAX_CACHED_CHARS else _record.__wrapped__
                    sections[section].append(record(text))
            except (EvaluationError, ValueError) as error:
                tallies = (matches, self._tally(family, subject, section, template.source))
                error_text = f"{section}: {error}"
                return Response(SERVFAIL, plugin="template", reuse=reuse, tallies=tallies, error=error_text)
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
            wildcard=subject.zone,
        )
        if request.query.qtype == CNAME:
            return response
        owners = {folded(rrset.owner) for rrset in response.answer}
        targets = [str(rrset.rdata[0]) for rrset in response.answer if rrset.rtype == CNAME]
        open_ended = [target for target in targets if folded(target) not in owners]
        return self._completed(request, response, open_ended[-1]) if open_ended else response

    def _tally(self, family: Counters, subject: Subject, *more: str) -> Tally:
        """Unknown classes and types share labels, so that clients cannot add counters."""
        request = subject.request
        qclass = class_name(request.query.qclass)
        known = "other" if qclass.startswith("CLASS") else qclass
        return family.tally(request.server, subject.zone, request.view, known, type_label(request.query.qtype), *more)

    def _completed(self, request: Request, response: Response, target: str) -> ServeResult:
        """Adds the server's answer for the target of the last CNAME.

        Only one target is followed: templates that lead to each other make a chain of queries, not a tree.
        """
        try:
            onward = request.about(labels_of(target))
        except ValueError:
            return response
        return then(self._world.resolve(onward), partial(_joined, response, request.received_s))


@lru_cache(MAX_CACHED)
def _record(text: str) -> RRset:
    """Cached: answers that depend on the client are made for each query, usually from few texts."""
    from kdns.dns.zonefile import parse_record  # noqa: PLC0415 - imported at the start

    return parse_record(text, default_ttl_s=DEFAULT_TTL_S)


def _joined(response: Response, now_s: float, reply: Reply) -> Response:
    if reply is None:
        return evolve(response, reuse=PRIVATE)
    reply = counted_down(from_wire(reply), now_s)
    is_absent = reply.rcode == NXDOMAIN and response.rcode == NOERROR
    return evolve(
        response,
        rcode=NXDOMAIN if is_absent else response.rcode,
        answer=(*response.answer, *reply.answer),
        flags=response.flags | (reply.flags & TC),
        reuse=response.reuse.and_then(reply.reuse),
        tallies=(*response.tallies, *reply.tallies),
    )


DIRECTIVE: Final = Directive(
    USAGE,
    TemplateConfig,
    TemplatePlugin,
    OPTIONS,
    Repeat.ADD,
    parse=parse,
    example="ANY ANY",
    warnings=warnings,
    warned="template always fails",
)
