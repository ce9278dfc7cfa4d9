"""Recorded cases as parameters: each is a test of its own, which `-k` finds and processes share."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from kdns.errors import InputError

FOLDER = Path(__file__).parents[2].parent / "shared" / "conformance"

Json: TypeAlias = dict[str, Any]


@cache
def recorded(name: str) -> Json:
    """A file of recorded cases; skips the whole module if the folder is absent."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"the recorded cases are not here: {path}", allow_module_level=True)
    content: Json = json.loads(path.read_bytes())
    return content


def each_case(
    cases: Iterable[Any], name_of: Callable[[Any], str], known: Mapping[str, str] | None = None
) -> pytest.MarkDecorator:
    """Makes a test of each case. `known` has the names of those that must fail or be refused, with the reason."""
    known, names, rows = known or {}, Counter[str](), []
    for case in cases:
        names[name := name_of(case)] += 1
        name += f" ({names[name]})" if names[name] > 1 else ""
        deviates = [pytest.mark.xfail(reason=known[name], raises=(AssertionError, InputError))] if name in known else []
        rows.append(pytest.param(name, case, id=name, marks=deviates))
    assert len(rows) > 20
    assert known.keys() <= {row.id for row in rows}
    return pytest.mark.parametrize(("name", "case"), rows)
