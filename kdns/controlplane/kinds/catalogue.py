"""The catalogue: every kind that one API server serves, with its strategy and its conversions.

A kind in a catalogue needs nothing else: routes, discovery, lists and watches, owners, namespaces, the journal,
manifests and the OpenAPI documents all read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kdns.controlplane.apimachinery.kinds import Kind, Kinds
from kdns.controlplane.kinds.conversion import VersionConversion
from kdns.controlplane.kinds.strategy import Strategy
from kdns.controlplane.storage.field_selectors import FieldLabels


class Catalogue(Kinds):
    """Kinds with their strategies: `catalogue[kind]` is the strategy of a stored kind."""

    def __init__(
        self,
        strategies: Mapping[Kind, Strategy],
        conversions: Iterable[VersionConversion] = (),
        reviews: Iterable[Kind] = (),
    ) -> None:
        self._strategies = dict(strategies)
        self._conversions = {conversion.kind: conversion for conversion in conversions}
        super().__init__((*strategies, *self._conversions, *reviews))

    def __getitem__(self, kind: Kind) -> Strategy:
        """Kinds that are no longer served keep their strategies, for requests in flight."""
        return self._strategies[kind]

    def conversion(self, kind: Kind | None) -> VersionConversion | None:
        """None for a kind that is stored itself."""
        return self._conversions.get(kind) if kind else None

    def strategy(self, kind: Kind, served_version: Kind | None) -> Strategy:
        """A served version of a custom kind may have rules of its own."""
        return (self._strategies.get(served_version) if served_version else None) or self[kind]

    def field_labels(self, kind: Kind, served_version: Kind | None) -> FieldLabels:
        conversion = self.conversion(served_version)
        return (conversion.field_labels if conversion else None) or self[kind].field_labels

    def put(
        self,
        kind: Kind,
        strategy: Strategy,
        versions: Iterable[Kind] | None = None,
        conversions: Iterable[VersionConversion] = (),
        strategies: Mapping[Kind, Strategy] | None = None,
    ) -> None:
        """Serves a further stored kind, at once and everywhere.

        `versions` are the kinds in which it is served, by default itself. `conversions` convert the others, and
        `strategies` are those of versions with rules of their own.
        """
        self._strategies |= {kind: strategy, **(strategies or {})}
        others = {
            served: conversion for served, conversion in self._conversions.items() if served.stored_kind is not kind
        }
        self._conversions = others | {conversion.kind: conversion for conversion in conversions}
        self._learn(kind, (kind,) if versions is None else versions)

    def remove(self, kind: Kind) -> None:
        self._forget(kind)
