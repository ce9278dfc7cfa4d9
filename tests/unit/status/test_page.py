"""The page as a reader has it: contrasts, labels and headings."""

import re
from html.parser import HTMLParser

import pytest

from kdns.cluster.io.informer import FollowStats
from kdns.cluster.objects import Service
from kdns.cluster.source import Source
from kdns.cluster.state import State
from kdns.status.history import Line
from kdns.status.io.watched import Watched, watch_problems
from kdns.status.page import Advice, Fact, Form, Section, Table, View, age, percent, rate
from kdns.status.plot import plot
from kdns.status.render import asset, html

VIEW = View(
    "kdns",
    "now",
    [Advice("Something <is> wrong.")],
    [Form("/status/explain", "Why?", "Explain", [("name", "Name", "web", '"><b>')], "an answer", "an error")],
    [
        Section("Served", [Fact("Version", "1")], tables=[Table("Objects", ("Kind", "Known"), [("pods", "<3>")])]),
        Section("Queries", plots=[plot("Responses", [Line("NOERROR", [0.0, 5.0])]), plot("None", [])]),
        Section("Who asks", storms=[Advice("much", "less")], tables=[Table("Nobody", ("Name",), [], "None yet.")]),
    ],
)


class Outline(HTMLParser):
    """The headings, ids, links and labelled fields of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str, name: str) -> list[str]:
        return [attributes[name] or "" for each, attributes in self.tags if each == tag and name in attributes]


def outline() -> Outline:
    read = Outline()
    read.feed(html(VIEW))
    return read


def test_what_is_named_is_there() -> None:
    read = outline()
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {href.removeprefix("#") for href in read.all("a", "href") if href} <= set(ids)
    assert set(read.all("section", "aria-labelledby")) <= set(ids)
    assert read.all("label", "for") == read.all("input", "id") == ["name"]
    assert all(read.all("svg", "aria-label"))
    assert read.all("html", "lang") == ["en"]
    assert sum(tag == "h1" for tag, _ in read.tags) == 1
    assert [attributes.get("scope") for tag, attributes in read.tags if tag == "th"] == ["col", "col", "row"]


def test_text_is_escaped() -> None:
    text = html(VIEW)
    assert "Something &lt;is&gt; wrong." in text
    assert 'value="&#34;&gt;&lt;b&gt;"' in text
    assert "&lt;3&gt;" in text


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2) of #rrggbb."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrasts_suffice(theme: int) -> None:
    blocks = re.findall(r":root \{(.*?)\}", asset("status.css"), re.DOTALL)
    colours = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", blocks[theme]))
    for text, ground in (
        ("text", "ground"),
        ("soft", "ground"),
        ("link", "ground"),
        ("text", "panel"),
        ("problem", "problem-ground"),
        ("problem", "ground"),
        ("link", "problem-ground"),
    ):
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for number in range(1, 7):
        assert contrast(colours[f"line-{number}"], colours["ground"]) >= 3, number


def test_nothing_is_loaded_from_elsewhere() -> None:
    for text in (html(VIEW), asset("status.css"), asset("status.js")):
        assert "//" not in text.replace("// ", "")


def test_numbers_in_words() -> None:
    assert [rate(value) for value in (0, 0.26, 9.99, 12345.6)] == ["0.0/s", "0.3/s", "10.0/s", "12,346/s"]
    assert [percent(1, 3), percent(0, 0)] == ["33%", "0%"]
    assert [age(value) for value in (0.00025, 3.2, 90, 7200, 200_000)] == ["0.2 ms", "3 s", "2 min", "2 h", "2 d"]


def test_a_cluster_whose_api_is_away_is_a_problem() -> None:
    cluster = Watched(Source(endpoint="https://api:6443"), State(stale={Service}, as_of_s=0.0), FollowStats())
    (problem,) = watch_problems([cluster, cluster._replace(state=State())])
    assert problem.startswith("The API https://api:6443 does not answer. Names are those of the snapshot of 1970-")
