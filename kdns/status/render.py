"""The page as HTML. Text of clients, such as names, gets into it escaped only."""

from __future__ import annotations

from functools import cache
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from kdns.status.page import View, rate
from kdns.status.plot import HEIGHT, WIDTH

_TEMPLATES: Final = PackageLoader("kdns.status", "templates")


def html(view: View) -> str:
    return _template().render(view=view, width=WIDTH, height=HEIGHT)


def asset(name: str) -> str:
    return _TEMPLATES.get_source(_template().environment, name)[0]


@cache
def _template() -> Template:
    environment = Environment(
        loader=_TEMPLATES, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["rate"] = rate
    return environment.get_template("status.html")
