"""A drawing of the rooms of kdns: who imports whom, from the imports of the modules.

The layers are the lengths of the longest paths of imports; an arrow that follows from two others is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias
from xml.sax.saxutils import escape

PACKAGE: Final = Path(__file__).parents[2] / "kdns"
PLAN: Final = ("proxy", "plan")
"""A room of its own: what looks for problems reads plans, and the rest of the dataplane shows them."""
BASE: Final = "errors, net, logs …"
"""The room of the modules beside the folders that import nothing but each other."""
_BOX_WIDTH: Final = 132
_BOX_HEIGHT: Final = 34
_COLUMN: Final = 160
_LAYER: Final = 76
_MARGIN: Final = 20
_SWEEPS: Final = 8
_HEAD: Final = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z"/></marker></defs>'
)
_STYLE: Final = """
text { font: 14px sans-serif; text-anchor: middle; fill: #1b1f24 }
rect { fill: #eef3fb; stroke: #4a6fa5; rx: 6px }
path { fill: none; stroke: #6b7785; stroke-width: 1.2 }
marker path { fill: #6b7785; stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } rect { fill: #1f2a3a; stroke: #7ea2d6 } path { stroke: #8b98a9 } marker path { fill: #8b98a9 }
}
"""

Graph: TypeAlias = Mapping[str, frozenset[str]]
"""Room → the rooms that it imports."""


def drawing() -> str:
    """Returns the drawing as SVG."""
    graph = _reduced(rooms())
    columns, lines = _placed(graph)
    width = (max(columns.values()) + 1) * _COLUMN + _MARGIN
    height = (max(layer for layer, _ in columns) + 1) * _LAYER
    top = max(layer for layer, _ in columns)

    def center(node: tuple[int, str]) -> tuple[float, float]:
        return _MARGIN / 2 + (columns[node] + 0.5) * _COLUMN, (top - node[0] + 0.5) * _LAYER

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        "<title>Rooms of kdns and their imports</title>",
        f"<style>{_STYLE}</style>",
        _HEAD,
        *(_arrow([center(node) for node in line]) for line in lines),
        *(_box(room, *center((layer, room))) for layer, room in sorted(columns) if room in graph),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def rooms() -> Graph:
    """Returns the rooms with their imports."""
    imports: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        own = _room(path.relative_to(PACKAGE).with_suffix("").parts)
        imports.setdefault(own, set()).update(_imported(path) - {own})
    del imports["__init__"]
    files = {room for room in imports if (PACKAGE / f"{room}.py").exists()}
    while outer := {room for room in files if imports[room] - files}:
        files -= outer
    merged: dict[str, set[str]] = {BASE: set()}
    for room, others in imports.items():
        if room not in files:
            merged[room] = {BASE if other in files else other for other in others}
    return {room: frozenset(others & merged.keys()) for room, others in merged.items()}


def _room(parts: Sequence[str]) -> str:
    """Returns the room of a module below the package."""
    if parts[:2] == PLAN:
        return ".".join(PLAN)
    return {"__main__": "cli"}.get(parts[0], parts[0])


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {_room(tuple(name.split(".")[1:])) for name in names if name.startswith("kdns.")}


def _reduced(graph: Graph) -> Graph:
    """Returns the graph without the arrows that follow from others."""
    below: dict[str, set[str]] = {}

    def reached(room: str) -> set[str]:
        if room not in below:
            below[room] = set(graph[room]).union(*map(reached, graph[room]))
        return below[room]

    return {
        room: frozenset(other for other in others if not any(other in reached(each) for each in others))
        for room, others in graph.items()
    }


def _placed(graph: Graph) -> tuple[dict[tuple[int, str], float], list[list[tuple[int, str]]]]:
    """Returns the column of each node, which is a layer with a room or an arrow that passes, and the arrows."""
    layers: dict[str, int] = {}

    def layer(room: str) -> int:
        if room not in layers:
            layers[room] = max((layer(other) + 1 for other in graph[room]), default=0)
        return layers[room]

    lines = [
        [
            (level, room if level == layer(room) else other if level == layer(other) else f"{room}→{other}")
            for level in range(layer(room), layer(other) - 1, -1)
        ]
        for room in sorted(graph)
        for other in sorted(graph[room])
    ]
    nodes = sorted({node for line in lines for node in line})
    near: dict[tuple[int, str], list[tuple[int, str]]] = {node: [] for node in nodes}
    for line in lines:
        for upper, lower in pairwise(line):
            near[upper].append(lower)
            near[lower].append(upper)
    rows = {level: [node for node in nodes if node[0] == level] for level in range(nodes[-1][0] + 1)}
    columns = {node: float(index) for row in rows.values() for index, node in enumerate(row)}
    widest = max(map(len, rows.values()))
    for _ in range(_SWEEPS):
        for row in rows.values():
            _sweep(row, near, columns, widest)
    return columns, lines


def _sweep(
    row: list[tuple[int, str]],
    near: Mapping[tuple[int, str], Iterable[tuple[int, str]]],
    columns: dict[tuple[int, str], float],
    widest: int,
) -> None:
    """Moves the nodes of a layer below and above their neighbours, a column apart."""

    def mean(node: tuple[int, str]) -> float:
        places = [columns[each] for each in near[node]]
        return sum(places) / len(places)

    row.sort(key=lambda node: (mean(node), node))
    left = 0.0
    for index, node in enumerate(row):
        rest = len(row) - index
        left = columns[node] = min(max(left, mean(node)), float(widest - rest))
        left += 1


def _arrow(points: list[tuple[float, float]]) -> str:
    return f'<path marker-end="url(#head)" d="{" ".join(_curve(points))}"/>'


def _curve(points: list[tuple[float, float]]) -> Iterator[str]:
    half = _BOX_HEIGHT / 2
    last = len(points) - 1
    x, y = points[0]
    yield f"M{x:.0f} {y + half:.0f}"
    for index, (x, y) in enumerate(points[1:], 1):
        before_x, before_y = points[index - 1]
        end = y - half if index == last else y
        middle = (before_y + y) / 2
        yield f"C{before_x:.0f} {middle:.0f} {x:.0f} {middle:.0f} {x:.0f} {end:.0f}"


def _box(room: str, x: float, y: float) -> str:
    corner = f'x="{x - _BOX_WIDTH / 2:.0f}" y="{y - _BOX_HEIGHT / 2:.0f}"'
    rect = f'<rect {corner} width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}"/>'
    return f'{rect}<text x="{x:.0f}" y="{y + 5:.0f}">{escape(room)}</text>'
