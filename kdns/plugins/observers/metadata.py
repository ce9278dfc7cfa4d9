"""metadata [ZONES…]: facts about queries, for logs and later directives.

A fact's label begins with the directive that provides it, such as `kubernetes/namespace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol, runtime_checkable

from kdns.answers.chain import Plugin, Request, Sees, Serve, ServeResult
from kdns.dns.names import ZoneSet
from kdns.serverblocks.directive import Directive, World
from kdns.values import evolve


@runtime_checkable
class Provider(Protocol):
    """A plugin that provides facts about queries."""

    def metadata(self, request: Request) -> Mapping[str, str]:
        """Facts by label; called at most once for a query, when one of its facts is read."""
        ...


def is_label(text: str) -> bool:
    """A directive, a slash, and a name."""
    directive, slash, name = text.partition("/")
    return bool(directive and slash and name.strip("/"))


class Facts(Mapping[str, str]):
    """The metadata of one query, from providers that are called at the first look-up of a label."""

    __slots__ = ("_facts", "_noted", "_providers", "_request")

    def __init__(self, request: Request, providers: tuple[Provider, ...]) -> None:
        self._request = request
        self._providers = providers
        self._facts: dict[str, str] | None = None
        self._noted: dict[str, str] = {}

    def note(self, label: str, value: str) -> None:
        self._noted[label] = value
        self._facts = None

    @property
    def _all(self) -> dict[str, str]:
        if self._facts is None:
            self._facts = {
                label: value
                for provider in self._providers
                for label, value in provider.metadata(self._request).items()
                if is_label(label)
            } | self._noted
        return self._facts

    def __getitem__(self, label: str) -> str:
        return self._all[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


class Metadata(Plugin):
    """Adds the facts of the block's plugins to each request.

    It sees every query, because answers of later directives may depend on facts about the client.
    """

    sees = Sees.EVERY

    def __init__(self, zones: Iterable[str], world: World) -> None:
        self._zones = ZoneSet(zones)
        self._world = world
        self._providers: tuple[Provider, ...] | None = None

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        return next(self.with_facts(request))

    def with_facts(self, request: Request) -> Request:
        if request.query.labels not in self._zones:
            return request
        if self._providers is None:
            self._providers = tuple(plugin for plugin in self._world.plugins() if isinstance(plugin, Provider))
        return evolve(request, metadata=Facts(request, self._providers))


DIRECTIVE: Final = Directive("metadata [ZONES...]", tuple[str, ...], Metadata)
