"""The status page as an SVG image for the README: the page's own template and style, with invented numbers."""

from __future__ import annotations

import re
from math import sin
from typing import Final

from kdns.status.history import READINGS, Line
from kdns.status.page import Fact, Form, Section, Table, View
from kdns.status.plot import plot
from kdns.status.render import asset, html

_WIDTH: Final = 960
_HEIGHT: Final = 1040
_XHTML: Final = "http://www.w3.org/1999/xhtml"
_SVG: Final = "http://www.w3.org/2000/svg"


def _line(name: str, rate: float, phase: float) -> Line:
    return Line(name, [rate * (1 + 0.2 * sin(phase + at / 9) + 0.07 * sin(at * 1.7)) for at in range(READINGS)])


_VIEW: Final = View(
    "kdns",
    "2026-06-01 12:00:00 UTC",
    (),
    (Form("explain", "Why has a name its answer?", "Explain", (("name", "Name", "web.shop", "cart.shop"),)),),
    (
        Section(
            "Served",
            (Fact("Up for", "12 d"), Fact("Listens on", "dns://0.0.0.0:53, tls://0.0.0.0:853")),
            tables=(
                Table(
                    "Server blocks",
                    ("Zone", "Server", "View", "Directives"),
                    ((".", "dns://:53", "", "errors health ready kubernetes prometheus forward cache status"),),
                ),
            ),
        ),
        Section(
            "Queries",
            (
                Fact("Queries", "2,041/s"),
                Fact("Since the start", "1,906,213,440"),
                Fact("50% answered within", "0.2 ms"),
                Fact("99% answered within", "4.0 ms"),
                Fact("Dropped", "0"),
            ),
            plots=(
                plot(
                    "Responses by code, the last 30 min",
                    [_line("NOERROR", 1490, 0), _line("NXDOMAIN", 520, 2), _line("SERVFAIL", 12, 4)],
                ),
                plot(
                    "By directive, the last 30 min",
                    [_line("kubernetes", 1570, 0), _line("cache", 340, 3), _line("forward", 95, 5)],
                ),
            ),
        ),
        Section(
            "Who asks for what",
            tables=(
                Table(
                    "Names",
                    ("Name", "Type", "Response", "Part"),
                    (
                        ("cart.shop.svc.cluster.local.", "A", "NOERROR", "31%"),
                        ("db.shop.svc.cluster.local.", "AAAA", "NOERROR", "17%"),
                    ),
                ),
            ),
        ),
    ),
)


def picture() -> str:
    body = html(_VIEW).partition("</a>\n<header>")[2].partition("</body>")[0]
    body = re.sub(r"(<input [^>]*)>", r"\1/>", f"<header>{body}").replace(" hidden>", ">")
    body = body.replace("<svg ", f'<svg xmlns="{_SVG}" ')
    body = re.sub(r"<nav.*?</nav>|<noscript.*?</noscript>", "", body, flags=re.DOTALL)
    return (
        f'<svg xmlns="{_SVG}" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'style="width:{_WIDTH}px;height:{_HEIGHT}px" role="img">\n<title>The status page of kdns</title>\n'
        f"<style><![CDATA[\n{asset('status.css')}]]></style>\n"
        f'<foreignObject width="{_WIDTH}" height="{_HEIGHT}">\n<body xmlns="{_XHTML}">\n'
        f"{body}</body>\n</foreignObject>\n</svg>\n"
    )
