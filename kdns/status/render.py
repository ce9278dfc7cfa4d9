"""The page as HTML. Text of clients, such as names, gets into it escaped only."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from kdns.status.page import View, rate
from kdns.status.plot import HEIGHT, WIDTH


def html(view: View) -> str:
    return _template().render(view=view, width=WIDTH, height=HEIGHT)


def asset(name: str) -> str:
    source, _, _ = _loader().get_source(_environment(), name)
    return source


@cache
def _loader() -> PackageLoader:
    return PackageLoader("kdns.status", "templates")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=_loader(), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["rate"] = rate
    return made


@cache
def _template() -> Template:
    return _environment().get_template("status.html")
