"""Explanations in words for a person, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kdns.explain.explain import Explanation
from kdns.explain.findings import Findings
from kdns.spelling import listed


def as_text(findings: Findings) -> str:
    """The names that were tried, if they are several, and one answer with its causes, each on a line."""
    return "\n".join(_lines(findings))


def _lines(findings: Findings) -> Iterator[str]:
    tried, chosen = findings.tried, findings.chosen
    if findings.remark:
        yield findings.remark
    if len(tried) > 1:
        yield "The resolver tries these names until one has an answer:"
        width = max(len(explanation.name) for explanation in tried)
        for explanation in tried:
            mark = "→" if explanation.name == chosen.name else " "
            yield f"{mark} {explanation.name:{width}}  {verdict_text(explanation)}"
        yield ""
    yield f"{chosen.name} {chosen.qtype} → {verdict_text(chosen)}"
    yield from (f"  {cause.text}" for cause in chosen.causes)
    if chosen.block:
        by = f"`{chosen.directive}` of " if chosen.directive else "no directive of "
        yield f"  {'passed on' if chosen.is_forwarded else 'answered'} by {by}the server block `{chosen.block}`"
    if chosen.command:
        yield f"Try: {chosen.command}"


def verdict_text(explanation: Explanation) -> str:
    if explanation.is_forwarded:
        upstreams, asked = " or ".join(explanation.upstreams) or "an upstream", explanation.asked
        return f"{upstreams} would be asked{asked and f' for {asked}'}"
    records = explanation.records
    of_type = [record.data for record in records if record.rtype == explanation.qtype]
    text = listed(of_type or [f"{record.rtype} {record.data}" for record in records])
    return text if explanation.is_answered else f"{explanation.verdict}{text and f' behind {text}'}"


def as_json(findings: Findings) -> str:
    """The same for programs; `tried` are the names in the order in which a resolver tries them."""
    chosen = findings.chosen
    fields = {
        "name": chosen.name,
        "type": chosen.qtype,
        "verdict": chosen.verdict,
        "records": [*map(str, chosen.records)],
        "upstreams": [*chosen.upstreams],
        "asked": chosen.asked,
        "serverBlock": chosen.block,
        "directive": chosen.directive,
        "causes": [{"text": cause.text, "command": cause.command} for cause in chosen.causes],
        "command": chosen.command,
        "remark": findings.remark,
        "tried": [
            {"name": tried.name, "verdict": tried.verdict, "records": [*map(str, tried.records)]}
            for tried in findings.tried
        ],
    }
    return json.dumps(fields, indent=2, ensure_ascii=False)
