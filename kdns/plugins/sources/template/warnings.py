"""Finds templates that fail for every query, as far as that can be decided without a query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdns.answers.chain import Request
from kdns.dns.names import labels_of
from kdns.dns.query import query_for
from kdns.dns.types import AAAA, ANY, TXT, A
from kdns.errors import CorefileError
from kdns.plugins.sources.template.config import TemplateConfig
from kdns.plugins.sources.template.gofunctions import GoValue
from kdns.plugins.sources.template.gotemplate import Template
from kdns.plugins.sources.template.stencil import FIELDS, Stencil, Subject, stencil_of
from kdns.serverblocks.expressions.values import EvaluationError
from kdns.spelling import closest

_CLIENTS: Final = ("192.0.2.1", "2001:db8::1")
_TYPES: Final = (A, AAAA, TXT)
"""Types to try for a stanza of type ANY."""
_UNKNOWN: Final = frozenset((".", "Message", "Meta", "Var"))
"""Fields with values that are unknown without a query."""


def warnings(config: TemplateConfig) -> Iterator[CorefileError]:
    """Unknown fields, and texts that are invalid records for every name."""
    stencil = stencil_of(config)
    for (_, template), token in zip(config.records, config.words, strict=True):
        if reason := _missing_field(stencil, template) or _failure(stencil, template):
            lacks_quotes = not token.quoted and " " not in token.text
            yield token.error(f"{reason}; a record stands in double quotes" if lacks_quotes else reason)


def _missing_field(stencil: Stencil, template: Template) -> str:
    config = stencil.config
    groups = {str(number) for number in range(1 + max((pattern.groups for pattern in config.patterns), default=0))}
    named = {
        "Group": groups.union(*(pattern.groupindex for pattern in config.patterns)),
        "Var": {name for name, _ in config.variables},
    }
    subject = next(_subjects(stencil))
    for chain in template.chains:
        value: GoValue = {name: make(subject) for name, make in FIELDS.items()}
        for depth, name in enumerate(chain):
            names = named.get(chain[0], ()) if depth == 1 and chain[0] in named else value
            if not isinstance(names, dict | set) or name not in names:
                close = closest(name, list(names) if isinstance(names, dict | set) else ())
                meant = f"; did you mean `.{'.'.join((*chain[:depth], close))}`?" if close else ""
                return f"unknown field `.{'.'.join(chain[: depth + 1])}`{meant}"
            value = value.get(name)
    return ""


def _failure(stencil: Stencil, template: Template) -> str:
    """Why a template gives no record for any of the tried queries; "" if it may for others."""
    from kdns.dns.zonefile import has_type, parse_record  # noqa: PLC0415 - imported at the start

    config = stencil.config
    is_conditional = bool(config.patterns or config.conditions)
    if not _UNKNOWN.isdisjoint(template.fields) or (is_conditional and template.has_branches):
        return ""
    is_for_groups = bool(config.patterns) and not template.fields.isdisjoint(("Group", "Match"))
    reason = ""
    for subject in _subjects(stencil):
        try:
            text = template.run(stencil.data(subject)).strip()
            if not text or (is_for_groups and has_type(text)):
                return ""
            parse_record(text)
        except EvaluationError as error:
            if is_conditional:
                return ""
            reason = reason or str(error)
        except ValueError as error:
            reason = reason or str(error)
        else:
            return ""
    return reason


def _subjects(stencil: Stencil) -> Iterator[Subject]:
    """Sample questions: a name in the first zone of the stanza, with its type, and a digit for each regex group."""
    config = stencil.config
    zone = config.zones[0]
    name = f"name-to-try.{zone.removesuffix('.')}" if len(zone) < 200 else zone
    groups = max((pattern.groups for pattern in config.patterns), default=0)
    named = {group: "1" for pattern in config.patterns for group in pattern.groupindex}
    for qtype in _TYPES if config.qtype == ANY else (config.qtype,):
        for client in _CLIENTS:
            request = Request(query_for(labels_of(name), qtype), client=(client, 0))
            match = (request.query.name, *["1"] * groups)
            by_number = {str(number): text for number, text in enumerate(match)}
            yield Subject(request, zone, match, by_number | named, {})
