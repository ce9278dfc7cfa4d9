"""Explanations in words for a person, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kdns.explain.explain import Explanation
from kdns.spelling import listed


def as_text(tried: Sequence[Explanation], chosen: Explanation, remark: str = "") -> str:
    """Returns the names that were tried, if they are several, and one answer with its causes, each on a line."""
    return "\n".join((*_tried(tried, chosen, remark), *_answer(chosen)))


def _tried(tried: Sequence[Explanation], chosen: Explanation, remark: str) -> Iterator[str]:
    if remark:
        yield remark
    if len(tried) > 1:
        yield "The resolver tries these names until one has an answer:"
        width = max(len(one.name) for one in tried)
        for one in tried:
            mark = "→" if one.name == chosen.name else " "
            yield f"{mark} {one.name:{width}}  {_verdict(one)}"
        yield ""


def _verdict(one: Explanation) -> str:
    if one.is_forwarded:
        return f"{' or '.join(one.upstreams) or 'an upstream'} would be asked{one.asked and f' for {one.asked}'}"
    shown = [record.data for record in one.records if record.rtype == one.qtype] or [
        f"{record.rtype} {record.data}" for record in one.records
    ]
    text = listed(shown)
    return text if one.is_answered else f"{one.verdict}{text and f' behind {text}'}"


def _answer(one: Explanation) -> Iterator[str]:
    yield f"{one.name} {one.qtype} → {_verdict(one)}"
    yield from (f"  {cause.text}" for cause in one.causes)
    if one.block:
        by = f"`{one.directive}` of " if one.directive else "no directive of "
        yield f"  {'passed on' if one.is_forwarded else 'answered'} by {by}the server block `{one.block}`"
    if one.command:
        yield f"Try: {one.command}"


def as_json(tried: Sequence[Explanation], chosen: Explanation, remark: str = "") -> dict[str, Any]:
    """Returns the same for programs; `tried` are the names in the order in which a resolver tries them."""
    return {
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
        "remark": remark,
        "tried": [{"name": one.name, "verdict": one.verdict, "records": [*map(str, one.records)]} for one in tried],
    }
