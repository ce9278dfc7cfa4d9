"""The `kubernetes` directive in the chain: names of Services, endpoints and pods, from a followed cluster."""

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
"""How many answers a second say why: to look for it takes a millisecond or so, and random names come at any rate."""
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
        """Adds other zones that receive the changes of this cluster."""
        self._attached.append(answers)

    def changed(self, changes: Sequence[Change], changed_s: float) -> None:
        """Drops the answers of changed subjects; the SOA serial becomes the time of the changes (Unix seconds).

        Before everything is listed only the zones' own names have answers that are kept. When a snapshot is served, or
        not any more, answers get or lose their mark.
        """
        visible = [change for change in changes if _is_visible(change)]
        is_marked, self._is_marked = self._is_marked, bool(self.zones.state.stale)
        if is_marked != self._is_marked:
            self._block.forget({APEX, STALE})
        if changes and not visible:
            return
        everyone = (self, *self._attached)
        subjects: set[Subject] = {APEX}
        if self.zones.is_synced or any(answers.zones.is_synced for answers in self._attached):
            subjects = {subject for change in visible for subject in touched(change, self.zones.state)}
        for answers in everyone:
            answers.touch(subjects, _serial(changed_s))
        self._block.forget(subjects)

    def _response(self, result: Result, request: Request) -> Response:
        """See ZoneAnswers. With `explain`, a negative answer to a client with EDNS says why."""
        response = super()._response(result, request)
        is_negative = response.soa is not None and not response.error
        if self.zones.options.explain and request.query.edns and is_negative:
            return self._explained(request.query, response, int(request.received_s))
        return response

    def _explained(self, query: Query, response: Response, second: int) -> Response:
        """Returns the answer with its causes, which any change may alter; EXPLAINED_PER_S in a second at most."""
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
        """See Transferer. Changes are not kept: there are too many, and most are never queried."""
        del serial
        return zone_transfer(self.zones, zone)

    def on_zone_change(self, changed: Callable[[str], None]) -> None:
        """See Transferer. No NOTIFY is sent: changes are too frequent."""


def _is_visible(change: Change) -> bool:
    """Returns whether some answer may be another one: labels of a pod are metadata of its queries only."""
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
