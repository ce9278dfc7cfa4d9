"""secondary [ZONES...] { transfer from HOST... | tsig KEY | catalog [ZONES...] | fallthrough [ZONES...] }.

Zones from a primary, refreshed at the intervals of their SOA and on NOTIFY (RFC 1034 §4.3.5, RFC 1996).
"""

from __future__ import annotations

import math
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kdns.answers.chain import Request, Serve, ServeResult
from kdns.answers.response import Response
from kdns.corefile.address import all_zones
from kdns.corefile.lines import Line
from kdns.dns.names import ZoneSet, labels_of
from kdns.dns.query import AA, OPCODE
from kdns.dns.types import AXFR, IXFR, NOERROR, SOA
from kdns.dns.zone.catalog import Member, parse_catalog
from kdns.dns.zone.difference import is_newer
from kdns.dns.zone.zone import Zone
from kdns.net import HostPort
from kdns.plugins.guards.tsig.plugin import Tsigs, key_name
from kdns.plugins.sources.file import Version
from kdns.plugins.sources.secondary.inbound import Inbound, TransferKind, question, serial_in
from kdns.plugins.sources.transfer import is_one_of
from kdns.plugins.sources.zones.authority import Authority, ServedZone, differences_to
from kdns.serverblocks.directive import Directive, Repeat, World
from kdns.serverblocks.stanza import FALLTHROUGH, UNLIMITED, Option, dns_address, sets
from kdns.upstream.upstream import UpstreamError, UpstreamTimeoutError, UpstreamUnreachableError

if TYPE_CHECKING:
    from kdns.plugins.guards.tsig.signature import Signer, Verifier

NAME: Final = "secondary"
NOTIFY_PAUSE_S: Final = 1.0
"""The shortest time between two refreshes of a zone after NOTIFY."""
QUERY_TIMEOUT_S: Final = 5.0
TRANSFER_TIMEOUT_S: Final = 30.0
"""The timeout of the connection, and of each message of a transfer."""
MAX_TRANSFER_S: Final = 3600.0
"""The timeout of a whole transfer, so that a slow primary does not block the next one."""
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 60.0
"""Backoff for a zone that was never transferred: delays double from the first to the last."""
LEAST_WAIT_S: Final = 2.0
"""The shortest refresh interval, whatever the SOA says; does not apply to NOTIFY."""


@dataclass(frozen=True, slots=True)
class SecondaryConfig:
    """`catalog`: members must be at or below these zones, () for any; None if the zones are not catalogs."""

    zones: tuple[str, ...]
    primaries: tuple[HostPort, ...] = ()
    key: str = ""
    catalog: tuple[str, ...] | None = None
    fallthrough: tuple[str, ...] = ()


def _transfer(config: SecondaryConfig, line: Line) -> SecondaryConfig:
    if line.args[0].text != "from":
        raise line.args[0].expected("`from` (the directive `transfer` sends zones to others)")
    if len(line.args) < 2:
        raise line.args[0].error("the address of a primary is missing; expected `transfer from 192.0.2.1`")
    return replace(config, primaries=(*config.primaries, *map(dns_address, line.args[1:])))


def _catalog(config: SecondaryConfig, line: Line) -> SecondaryConfig:
    zones = all_zones(line.args)
    is_for_all = not zones or config.catalog == ()
    return replace(config, catalog=() if is_for_all else tuple(dict.fromkeys((*(config.catalog or ()), *zones))))


OPTIONS: Final = {
    "transfer": Option("transfer from HOST[:PORT]...", _transfer, (1, UNLIMITED)),
    "tsig": Option("tsig KEY", sets("key", key_name)),
    "catalog": Option("catalog [ZONES...]", _catalog),
    "fallthrough": FALLTHROUGH,
}


@dataclass(slots=True, eq=False)
class Followed:
    """A zone that is transferred; `checked_s` is when it was last up to date.

    `catalog` is the catalog that it is a member of, "" for a zone of the Corefile. `attempts` counts failures.
    `is_notified`: a NOTIFY came since the last refresh; `is_noting`: a task handles it.
    """

    served: ServedZone
    config: SecondaryConfig
    catalog: str = ""
    member: Member | None = None
    checked_s: float = 0.0
    due_s: float = 0.0
    attempts: int = 0
    is_refreshing: bool = False
    is_notified: bool = False
    is_noting: bool = False
    is_dropped: bool = False
    reason: str = ""


class SecondaryZones(Authority):
    """Zones of primaries. A zone that is not transferred yet, or expired, is SERVFAIL."""

    takes_notify = True

    def __init__(self, configs: tuple[SecondaryConfig, ...], world: World) -> None:
        super().__init__(NAME, world)
        self.followed: dict[str, Followed] = {}
        for config in configs:
            for zone in config.zones:
                self._follow(zone, config)
        self._serve_all()

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        """NOTIFY from a primary refreshes the zone; others get no answer (RFC 1996 §3.10)."""
        if not request.query.flags & OPCODE:
            return super().serve(request, next)
        followed = self.followed.get(request.query.name)
        if followed is None:
            return next(request)
        if not is_one_of(request.client[0], followed.config.primaries):
            return None
        followed.is_notified = True
        if not followed.is_noting:
            followed.is_noting = True
            self._world.spawn(partial(self._note, followed))
        return Response(NOERROR, AA, plugin=NAME)

    async def _note(self, followed: Followed) -> None:
        """Refreshes a zone after NOTIFY, with a pause, because the sender's address may be forged."""
        try:
            while followed.is_notified and not followed.is_dropped:
                if not followed.is_refreshing:
                    followed.is_notified = False
                    await self.refresh(followed)
                await self._world.sleep(NOTIFY_PAUSE_S)
        finally:
            followed.is_noting = False

    async def refresh(self, followed: Followed) -> None:
        """Queries the primaries in turn until one answers; no-op while a refresh is running."""
        if followed.is_refreshing:
            return
        followed.is_refreshing = True
        try:
            await self._refresh(followed)
        finally:
            followed.is_refreshing = False

    async def _refresh(self, followed: Followed) -> None:
        reasons = []
        for primary in followed.config.primaries:
            try:
                await self._refresh_from(followed, primary)
            except (UpstreamError, ValueError) as error:
                reasons.append(f"{primary}: {error}")
                continue
            followed.checked_s = self._world.now_s()
            followed.attempts, followed.reason = 0, ""
            self._schedule(followed, is_good=True)
            return
        followed.attempts += 1
        self._schedule(followed, is_good=False)
        reason = "; ".join(reasons)
        if reason != followed.reason:
            followed.reason = reason
            self._world.log("warning", "zone not transferred", zone=followed.served.name, reason=reason)

    def _schedule(self, followed: Followed, *, is_good: bool) -> None:
        """The next refresh is after the SOA's refresh or retry, a little earlier at random, to spread secondaries."""
        zone = followed.served.zone
        if zone:
            wait_s = float(zone.soa_rdata.refresh if is_good else zone.soa_rdata.retry)
        else:
            wait_s = min(FIRST_RETRY_S * 2 ** min(followed.attempts, 10), LAST_RETRY_S)
        jitter = 0.9 + 0.0001 * self._world.random.randrange(1000)
        followed.due_s = self._world.now_s() + max(wait_s * jitter, LEAST_WAIT_S if zone else FIRST_RETRY_S * jitter)

    async def _refresh_from(self, followed: Followed, primary: HostPort) -> None:
        """Transfers the zone from a primary if it has a newer version."""
        served = followed.served
        zone = served.zone
        if zone:
            message_id = self._world.random.randrange(1 << 16)
            packet = question(served.name, SOA, message_id)
            signer = self._signer(followed)
            response = await self._world.datagram(primary, signer(packet) if signer else packet, QUERY_TIMEOUT_S)
            if signer:
                self._verifier(followed, signer).check(response, self._world.unix_s())
            if not is_newer(serial_in(response), zone.serial):
                return
            try:
                await self._transfer(followed, primary, zone)
            except (UpstreamTimeoutError, UpstreamUnreachableError):
                raise
            except (ValueError, UpstreamError):  # some primaries close the connection at an IXFR
                await self._transfer(followed, primary, None)
        else:
            await self._transfer(followed, primary, None)

    async def _transfer(self, followed: Followed, primary: HostPort, zone: Zone | None) -> None:
        served = followed.served
        message_id = self._world.random.randrange(1 << 16)
        packet = question(served.name, IXFR if zone else AXFR, message_id, zone.soa if zone else None)
        signer = self._signer(followed)
        if signer:
            packet = signer(packet)
        verifier = self._verifier(followed, signer) if signer else None
        inbound = Inbound(served.name, zone.serial if zone else None)
        # at the latest when the current zone expires
        expires_s = followed.checked_s + served.zone.soa_rdata.expire if served.zone else math.inf
        until_s = min(self._world.now_s() + MAX_TRANSFER_S, expires_s)
        async with aclosing(self._world.messages(primary, packet, TRANSFER_TIMEOUT_S)) as messages:
            async for message in messages:
                if verifier:
                    verifier.check(message, self._world.unix_s())
                if inbound.feed(message):
                    break
                if self._world.now_s() > until_s:
                    raise ValueError("the transfer takes too long")
            else:
                raise ValueError("the transfer ended before its last SOA")
        if verifier and not verifier.is_complete:
            raise ValueError("the last message is not signed")
        if inbound.kind is TransferKind.CURRENT or followed.is_dropped:
            return
        if served.zone and not is_newer(inbound.serial, served.zone.serial):
            raise ValueError(f"the zone has serial {inbound.serial}, which is not newer than {served.zone.serial}")
        is_catalog = followed.config.catalog is not None
        version, members = await self._world.in_thread(lambda: _version(inbound, served, is_catalog=is_catalog))
        if is_catalog:
            self._use_catalog(followed, members)
        self.renew(served, version.zone, version.differences)
        self._world.log("info", "zone transferred", zone=served.name, primary=str(primary), serial=version.zone.serial)

    def _signer(self, followed: Followed) -> Signer | None:
        """Signs requests with a key of the block's `tsig`; None if no key is configured."""
        name = followed.config.key
        if not name:
            return None
        secrets = (plugin.secrets.get(name) for plugin in self._world.plugins() if isinstance(plugin, Tsigs))
        secret = next(filter(None, secrets), None)
        if secret is None:
            raise ValueError(f"`tsig` has no key {name}")
        from kdns.plugins.guards.tsig.signature import DEFAULT_ALGORITHM, Signer  # noqa: PLC0415 - `tsig` has imported it

        return Signer(labels_of(name), secret, DEFAULT_ALGORITHM, self._world.unix_s)

    def _verifier(self, followed: Followed, signer: Signer) -> Verifier:
        from kdns.plugins.guards.tsig.signature import DEFAULT_ALGORITHM, Verifier  # noqa: PLC0415 - `tsig` has imported it

        return Verifier(labels_of(followed.config.key), signer.secret, DEFAULT_ALGORITHM, signer.mac)

    def _follow(self, zone: str, config: SecondaryConfig, catalog: str = "", member: Member | None = None) -> None:
        followed = Followed(ServedZone(zone, ZoneSet(config.fallthrough)), config, catalog, member)
        self.followed[zone] = followed
        self._world.spawn(partial(self._keep_fresh, followed))

    async def _keep_fresh(self, followed: Followed) -> None:
        """Refreshes a zone when it is due, until it is dropped; expires one that could not be refreshed in time."""
        while not followed.is_dropped:
            await self.refresh(followed)
            while not followed.is_dropped and (wait_s := followed.due_s - self._world.now_s()) > 0:
                zone = followed.served.zone
                valid_s = followed.checked_s + zone.soa_rdata.expire - self._world.now_s() if zone else wait_s
                if zone and valid_s <= 0:
                    self._world.log("warning", "zone expired", zone=followed.served.name)
                    self.renew(followed.served, None)
                    valid_s = wait_s
                await self._world.sleep(min(wait_s, valid_s))

    def _use_catalog(self, catalog: Followed, members: dict[str, Member]) -> None:
        """Follows the members of a catalog, and drops former members (RFC 9432 §5).

        A zone of another catalog changes owner only if that catalog says so (§4.3.1), and keeps its content only under
        the same label (§5.5).
        """
        name, config = catalog.served.name, replace(catalog.config, catalog=None)  # members are no catalogs
        allowed = ZoneSet(catalog.config.catalog or (".",))
        current = {zone: member for zone, member in members.items() if labels_of(zone) in allowed}
        former = [zone for zone, known in self.followed.items() if known.catalog == name and zone not in current]
        for zone in former:
            self.followed.pop(zone).is_dropped = True
        for zone, member in current.items():
            known = self.followed.get(zone)
            is_own = known is not None and known.catalog == name
            is_handed_over = known is not None and known.catalog != "" and known.member and known.member.coo == name
            if known and not (is_own or is_handed_over):
                self._world.log(
                    "warning", "member of a catalog left out", zone=zone, catalog=name, reason="served already"
                )
                continue
            if known and known.member and known.member.id == member.id:
                known.catalog, known.member, known.config = name, member, config
                continue
            if known:
                known.is_dropped = True
            self._follow(zone, config, name, member)
        self._serve_all()

    def _serve_all(self) -> None:
        self.serve_zones(followed.served for followed in self.followed.values())


def _version(inbound: Inbound, served: ServedZone, *, is_catalog: bool) -> tuple[Version, dict[str, Member]]:
    """The zone of a transfer, and the members of a catalog; runs in a thread."""
    zone = inbound.zone(served.zone)
    members: dict[str, Member] = {}
    if is_catalog:
        rrsets = [zone.soa, *zone.records()] if inbound.kind is TransferKind.CHANGES else list(inbound.records())[:-1]
        members = parse_catalog(served.name, rrsets)
    return Version(zone, differences_to(served, zone)), members


DIRECTIVE: Final = Directive(
    "secondary [ZONES...]",
    SecondaryConfig,
    SecondaryZones,
    OPTIONS,
    Repeat.ADD,
    needs={"transfer": "the primary is missing; expected an option such as `transfer from 192.0.2.1`"},
)
