"""The `kubernetes` directive in the chain: names of Services, endpoints and pods, from a watched cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kdns.answers.chain import Request, Serve, Source
from kdns.answers.response import Response, Reuse, Subject
from kdns.cluster.objects import Pod
from kdns.cluster.source import ClusterSpec
from kdns.cluster.state import Change, State
from kdns.dns.names import Labels
from kdns.dns.query import Query, extended_error
from kdns.dns.types import OTHER_ERROR
from kdns.plugins.sources.kubernetes.answers import ZoneAnswers
from kdns.plugins.sources.kubernetes.causes import ClusterCauses
from kdns.plugins.sources.kubernetes.config import OPTIONS, KubernetesConfig, parse
from kdns.plugins.sources.kubernetes.facts import client_facts, name_facts
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.records import ClusterNames
from kdns.plugins.sources.kubernetes.subjects import APEX, STALE, touched
from kdns.plugins.sources.kubernetes.transfer import zone_transfer
from kdns.plugins.sources.kubernetes.zone import Result, Zones
from kdns.plugins.sources.transfer import Transfer
from kdns.serverblocks.directive import Directive, World
from kdns.tally import Tally
from kdns.values import evolve

NAME: Final = "kubernetes"
TEXT_BYTES: Final = 240
EXPLAINED_PER_S: Final = 50
"""The most answers a second that say why: that takes about a millisecond, and random names come at any rate."""
OF_ALL_OBJECTS: Final = Reuse((APEX,))


class Kubernetes(ZoneAnswers):
    """The zones of one stanza, and other zones of the same cluster."""

    def __init__(self, state: State, options: Options, block: World, fallthrough: Iterable[str] = ()) -> None:
        zones = Zones(state, options)
        zones.serial = _serial(state.changed_s)
        super().__init__(NAME, zones, fallthrough)
        self._block = block
        self.plugins = block.plugins
        self._attached: list[ZoneAnswers] = []
        self._is_marked = False
        self._explained_in = 0, 0

    def attach(self, answers: ZoneAnswers) -> None:
        """The zones of `answers` get the changes of this cluster too."""
        self._attached.append(answers)

    def changed(self, changes: Sequence[Change], changed_s: float) -> None:
        """Forgets the touched subjects; the SOA serial becomes the time of the changes (Unix seconds).

        Until everything is listed, only answers about the zones' own names are reusable. When a snapshot begins or ends
        to be served, all marked answers are forgotten.
        """
        visible = [change for change in changes if _is_visible(change)]
        is_marked, self._is_marked = self._is_marked, bool(self.zones.state.stale)
        if is_marked != self._is_marked:
            self._block.forget({APEX, STALE})
        if changes and not visible:
            return
        subjects: set[Subject] = {APEX}
        if self.zones.is_synced or any(answers.zones.is_synced for answers in self._attached):
            subjects = {subject for change in visible for subject in touched(change, self.zones.state)}
        for answers in (self, *self._attached):
            answers.touch(subjects, _serial(changed_s))
        self._block.forget(subjects)

    def _response(self, result: Result, request: Request) -> Response:
        """With `explain`, a negative answer to a client with EDNS says why."""
        response = super()._response(result, request)
        is_negative = response.soa is not None and not response.error
        if self.zones.options.explain and request.query.edns and is_negative:
            return self._explained(request.query, response, int(request.received_s))
        return response

    def _explained(self, query: Query, response: Response, second: int) -> Response:
        """Adds the causes, which any change may alter, to at most EXPLAINED_PER_S answers a second."""
        self._explained_in = second, self._explained_in[1] + 1 if self._explained_in[0] == second else 1
        zone = self.zones.zone_of(query.labels)
        if zone is None or self._explained_in[1] > EXPLAINED_PER_S:
            return response
        causes = ClusterCauses(self.zones.state, self.zones.options, zone, is_brief=True).of(query.labels, query.qtype)
        text = "; ".join(cause.text for cause in causes).encode()[:TEXT_BYTES].decode(errors="ignore")
        options = (*response.options, extended_error(OTHER_ERROR, text))
        return evolve(response, options=options, reuse=response.reuse.and_then(OF_ALL_OBJECTS))

    def source(self, zone: Labels, later: Source | None, server: str) -> Source | None:
        del later, server
        own = self.zones.zone_of(zone)
        if own is None or not own.depth or own.name in self.zones.options.multicluster:
            return None
        falls_through = self._fallthrough.overlaps(zone)

        def link(tallies: tuple[Tally, ...], whole: Serve) -> Serve:
            soa = self._soas[own.name]
            return ClusterNames(self.zones, own, soa, tallies, whole, falls_through=falls_through).serve

        return Source(self.zones.options.ttl_s, link, falls_through)

    def metadata(self, request: Request) -> Mapping[str, str]:
        zones, labels = self.zones, request.query.labels
        zone = zones.zone_of(labels)
        facts: dict[str, str] = {}
        if zone is not None:
            is_multicluster = zone.name in zones.options.multicluster
            facts = name_facts(labels[: len(labels) - zone.depth], is_multicluster=is_multicluster)
        return facts | client_facts(request.client[0], zones.state)

    def transfer_zones(self) -> tuple[str, ...]:
        return self.zones.options.zones

    def transfer(self, zone: str, serial: int | None) -> Transfer | None:
        """There is no history of changes: there are too many, and most are never queried."""
        del serial
        return zone_transfer(self.zones, zone)

    def on_zone_change(self, changed: Callable[[str], None]) -> None:
        """Sends no NOTIFY: changes are too frequent."""


def _is_visible(change: Change) -> bool:
    """Whether answers may differ. Labels of a pod are only metadata of its queries."""
    old, new = change.old, change.new
    return not (isinstance(old, Pod) and isinstance(new, Pod) and old.addresses == new.addresses)


def _serial(changed_s: float) -> int:
    return int(changed_s) & 0xFFFFFFFF


def build(config: KubernetesConfig, world: World) -> Kubernetes:
    def changed(changes: Sequence[Change], changed_s: float) -> None:
        plugin.changed(changes, changed_s)

    spec = ClusterSpec(config.source, config.scope, config.snapshot)
    state = world.cluster(spec, changed, startup_timeout_s=config.startup_timeout_s)
    plugin = Kubernetes(state, replace(config.options, own_addresses=world.own_addresses), world, config.fallthrough)
    plugin.resolve = world.resolve
    world.readiness(NAME, lambda: plugin.zones.is_synced and (config.is_ready_when_stale or not state.stale))
    return plugin


DIRECTIVE: Final = Directive("kubernetes [ZONES...]", KubernetesConfig, build, OPTIONS, parse=parse)
