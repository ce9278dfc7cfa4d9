"""Runs the benchmarks and writes docs/benchmarks.md with their tables, plots, and the facts of the machine.

    python bench/suite.py                 all of them, about an hour
    python bench/suite.py dns_queries     one case, or several; the sections of the others stay as they are

A case is a program of this folder that prints tables in Markdown; arguments after `--` go to it.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

from _process import exit_at_sigterm

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parent / "docs" / "benchmarks.md"
PLOTS: Final = "benchmarks"
HEAD: Final = """\
# Benchmarks

`make bench` writes this page: every figure on it comes from a run of the program that its section names.
`make bench CASE=dns_queries` runs one of them.
They listen on loopback or in network namespaces of their own, on free ports, and end all processes that they start.
Compare ratios within a table: microseconds are those of one machine on one day.
Exponents say how a cost grows over the range of its table: 0 is not at all, 1 is in proportion.
"""


@dataclass(frozen=True, slots=True)
class Plot:
    """Columns of a table over its first one, or over `x`; with `rows` only those that begin so."""

    name: str
    title: str
    columns: tuple[str, ...]
    x: str = ""
    rows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Growth:
    """Columns of a table that are costs, and the column over which they may grow; no `costs` are all columns."""

    over: str
    costs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A program, its title, what is drawn of its first table, and what is said of the growth in its tables."""

    program: str
    title: str
    arguments: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    grows: tuple[Growth, ...] = ()


CASES: Final = (
    Case(
        "dns_queries",
        "DNS queries",
        plots=(
            Plot(
                "query-rate",
                "CPU µs for each query of an A record, over the queries per second",
                ("kdns µs", "knot µs", "nsd µs"),
                x="asked",
                rows=("A of a cluster IP",),
            ),
        ),
        grows=(Growth("asked", ("kdns µs", "knot µs", "nsd µs")),),
    ),
    Case("dns_ways", "DNS transports and options"),
    Case(
        "dns_sizes",
        "DNS over the size of the cluster",
        plots=(
            Plot(
                "cluster-size",
                "CPU µs for each query, over the number of Services",
                ("kdns A µs", "knot A µs", "kdns NXDOMAIN µs", "knot NXDOMAIN µs", "kdns SRV µs", "knot SRV µs"),
            ),
            Plot("memory", "MiB after the start, over the number of Services", ("MiB", "knot MiB")),
        ),
        grows=(Growth("Services"),),
    ),
    Case(
        "dns_growth",
        "DNS over endpoints and clients",
        grows=(Growth("endpoints"), Growth("clients")),
    ),
    Case(
        "dns_changes",
        "DNS while the cluster changes",
        plots=(Plot("churn", "ms until an answer, over the changes per second", ("p50 ms", "p99 ms", "p99.9 ms")),),
    ),
    Case("dns_workers", "DNS with worker processes"),
    Case("external_names", "External names"),
    Case("flood", "A flood of random names"),
    Case("change_latency", "From a change to its answer"),
    Case("control_plane", "The control plane"),
    Case(
        "node_rules",
        "Rules of a node",
        ("1000", "5000", "10000"),
        grows=(Growth("Services x 5", ("CPU until then", "one change, p50", "CPU per change", "RSS")),),
    ),
    Case("node_load", "Load of a node"),
    Case("vip", "A virtual IP"),
    Case("packets", "Packets in user space"),
    Case("relay", "Relays"),
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of Markdown."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> list[float | None]:
        """The numbers of a column; None where a row has no number."""
        position = self.head.index(name)
        return [number(row[position]) for row in self.rows]


def number(text: str) -> float | None:
    """The number at the beginning of a cell."""
    found = re.match(r"-?[\d,]+(\.\d+)?", text)
    return float(found[0].replace(",", "")) if found else None


def tables(text: str) -> Iterator[Table]:
    """All tables of a text."""
    lines: list[tuple[str, ...]] = []
    for line in (*text.splitlines(), ""):
        if line.startswith("|"):
            lines.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
        elif lines:
            yield Table(lines[0], tuple(lines[2:]))
            lines = []


def exponents(table: Table, growth: Growth) -> str:
    """How costs grow, from the first row of each sort to the last: log(y2/y1) / log(x2/x1). "" if nothing can be said.

    Rows are of one sort if they differ in numbers only.
    """
    if growth.over not in table.head:
        return ""
    sorts: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    at = table.head.index(growth.over)
    for row in table.rows:
        if number(row[at]):
            sorts.setdefault(tuple(cell for cell in row if cell and number(cell) is None), []).append(row)
    costs = growth.costs or tuple(name for name in table.head if name != growth.over)
    rows = []
    for sort, (first, *others) in sorts.items():
        if others and number(first[at]) != number(others[-1][at]):
            grown = [_exponent(table, (first, others[-1]), growth.over, cost) for cost in costs]
            if any(grown):
                rows.append(f"| {' '.join(sort)} | {' | '.join(grown)} |")
    head = f"| exponents over {growth.over} | {' | '.join(costs)} |\n|{'---|' * (len(costs) + 1)}"
    return "\n".join((head, *rows)) if rows else ""


def _exponent(table: Table, rows: tuple[tuple[str, ...], tuple[str, ...]], over: str, cost: str) -> str:
    (x1, x2), (y1, y2) = ([number(row[table.head.index(name)]) for row in rows] for name in (over, cost))
    return f"{math.log(y2 / y1) / math.log(x2 / x1):.2f}" if x1 and x2 and y1 and y2 else ""


def draw(plot: Plot, table: Table, to: Path) -> None:
    """Write a plot as SVG, without scripts."""
    from pygal.graph.line import Line  # noqa: PLC0415 - it puts an importer of its own into sys.meta_path
    from pygal.style import Style  # noqa: PLC0415

    style = Style(background="transparent", plot_background="transparent", font_family="sans-serif", stroke_width=2.0)
    x = plot.x or table.head[0]
    kept = Table(table.head, tuple(row for row in table.rows if not plot.rows or row[0] in plot.rows))
    chart = Line(
        js=[], style=style, title=plot.title, legend_at_bottom=True, width=800, height=400, range=None, show_dots=True
    )
    chart.x_labels = [row[table.head.index(x)] for row in kept.rows]
    for name in plot.columns:
        if name in table.head:
            chart.add(name, kept.column(name))
    chart.add_xml_filter(_without_scripts)
    to.parent.mkdir(exist_ok=True)
    to.write_bytes(chart.render() + b"\n")


def _without_scripts(root: Element) -> Element:
    for parent in root.iter():
        for script in parent.findall("script"):
            parent.remove(script)
    return root


def machine() -> str:
    """What the figures depend on."""
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    commit = _said("git", "-C", str(HERE), "rev-parse", "--short=8", "HEAD")
    cores = f"{os.cpu_count()} cores ({models[0] if models else platform.machine()})"
    system = f"Linux {platform.release().split('-')[0]}, CPython {platform.python_version()}"
    load = f"load {os.getloadavg()[0]:.1f} at the start"
    return f"{datetime.now(UTC):%Y-%m-%d}, commit {commit}: {cores}, {system}, {load}"


VERSIONS: Final = {
    "dnsperf": ("dnsperf", "-h"),
    "Knot DNS": ("knotd", "--version"),
    "NSD": ("nsd", "-v"),
    "Unbound": ("unbound", "-V"),
    "dnsmasq": ("dnsmasq", "--version"),
    "Knot Resolver": ("kresd", "--version"),
    "nft": ("nft", "--version"),
    "HAProxy": ("haproxy", "-v"),
    "etcd": ("etcd", "--version"),
}


def peers() -> str:
    """The peers that are installed, with their versions."""
    found = []
    for name, argv in VERSIONS.items():
        version = re.search(r"\d+(\.\d+)+", _said(*argv)) if shutil.which(argv[0]) else None
        if version:
            found.append(f"{name} {version[0]}")
    return ", ".join(found)


def _said(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()


def section(case: Case, arguments: Sequence[str]) -> str:
    """Run a case, and the text about it."""
    source = HERE / f"{case.program}.py"
    given = [*(arguments or case.arguments)]
    facts = machine()
    print(f"== {case.program}", flush=True)
    output = ""
    with subprocess.Popen([sys.executable, str(source), *given], stdout=subprocess.PIPE, text=True) as program:
        try:
            for line in program.stdout or ():
                print(line, end="", flush=True)
                output += line
            program.wait()
        finally:
            program.terminate()
    if program.returncode:
        raise SystemExit(f"{source} failed: this section stays as it was")
    found = list(tables(output))
    parts = [f"## {case.title}", f"```sh\npython bench/{' '.join((source.name, *given))}\n```"]
    parts += [_docstring(source), output.strip()]
    parts += [exponents(table, growth) for table in found for growth in case.grows]
    for plot in case.plots:
        draw(plot, found[0], PAGE.parent / PLOTS / f"{plot.name}.svg")
        parts.append(f"![{plot.title}]({PLOTS}/{plot.name}.svg)")
    parts.append(f"Measured on {facts}.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _docstring(source: Path) -> str:
    """What the program says about itself, one sentence a line as in all of docs/."""
    found = re.match(r'"""(.*?)"""', source.read_text(), re.DOTALL)
    paragraphs = found[1].strip().split("\n\n") if found else []
    return "\n\n".join(re.sub(r"(?<=[.:]) (?=[A-Z`])", "\n", paragraph.replace("\n", " ")) for paragraph in paragraphs)


def sections(page: str) -> dict[str, str]:
    """The sections of the page as it is, by their titles."""
    return {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in page.split("\n## ")[1:]}


def main() -> None:
    """Run what is asked for, one after the other; the page is written after each."""
    exit_at_sigterm()
    programs = [case.program for case in CASES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(programs)}; all without one")
    asked, _, given = " ".join(sys.argv[1:]).partition(" -- ")
    options = parser.parse_args(asked.split())
    if unknown := set(options.cases) - set(programs):
        parser.error(f"unknown cases {', '.join(sorted(unknown))}; there are {', '.join(programs)}")
    for case in CASES:
        if options.cases and case.program not in options.cases:
            continue
        text = section(case, given.split())
        written = sections(PAGE.read_text()) if PAGE.exists() else {}
        written[case.title] = text
        ordered = [written[each.title] for each in CASES if each.title in written]
        PAGE.write_text("\n".join((HEAD + f"The peers: {peers()}.\n", *ordered)))


if __name__ == "__main__":
    main()
