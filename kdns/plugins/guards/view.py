"""view NAME { expr EXPRESSION }: the server block answers only queries for which all expressions are true.

So several blocks may have the same zone: the first that matches answers. Blocks of a zone are tried before those of
zones above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kdns.answers.chain import Plugin, Request, Sees
from kdns.corefile.lines import Line
from kdns.errors import DoubtfulError
from kdns.plugins.observers.metadata import Metadata
from kdns.serverblocks.directive import Directive, World
from kdns.serverblocks.expressions.functions import QUERY_FUNCTIONS, Environment
from kdns.serverblocks.expressions.parser import Expression, expression
from kdns.serverblocks.expressions.values import ANY, BOOL, EvaluationError
from kdns.serverblocks.stanza import UNLIMITED, Option


@dataclass(frozen=True, slots=True)
class ViewConfig:
    """`name` is for metrics and metadata; `conditions` must all be true."""

    name: str
    conditions: tuple[Expression, ...] = ()
    doubts: tuple[DoubtfulError, ...] = ()


def _expr(config: ViewConfig, line: Line) -> ViewConfig:
    condition = expression(line.args, QUERY_FUNCTIONS)
    config = replace(config, conditions=(*config.conditions, condition))
    if condition.kind in {BOOL, ANY}:
        return config
    reason = f"the expression is a {condition.kind.value} and never true, so the block answers no query"
    doubt = DoubtfulError(line.path, line.line, line.args[0].text, reason)
    return replace(config, doubts=(*config.doubts, doubt))


OPTIONS: Final = {"expr": Option("expr EXPRESSION", _expr, (1, UNLIMITED))}


class ViewPlugin(Plugin):
    """Selects the queries of its block; the server asks before it calls the chain."""

    sees = Sees.PACKET

    def __init__(self, config: ViewConfig, world: World) -> None:
        self.view_name = config.name
        self.is_of_packet = all(condition.is_of_packet for condition in config.conditions)
        self._conditions = config.conditions
        self._world = world

    def metadata(self, request: Request) -> Mapping[str, str]:
        del request
        return {"view/name": self.view_name}

    def accepts(self, request: Request) -> bool:
        """With `metadata` in the block, expressions may use the facts of its directives."""
        for plugin in self._world.plugins():
            if isinstance(plugin, Metadata):
                request = plugin.with_facts(request)
        environment = Environment(request)
        try:
            return all(condition.value(environment) is True for condition in self._conditions)
        except EvaluationError:
            return False


DIRECTIVE: Final = Directive(
    "view NAME",
    ViewConfig,
    ViewPlugin,
    OPTIONS,
    example="v",
    warnings=lambda config: config.doubts,
    warned="view in doubt",
)
