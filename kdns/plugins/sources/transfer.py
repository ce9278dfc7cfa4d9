"""transfer [ZONES...] { to HOST... | * ; source ADDRESS }: sends zones to secondaries (AXFR, IXFR), and NOTIFY.

RFC 5936, RFC 1995, RFC 1996. The zones are those of later directives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from struct import pack
from typing import Final, NamedTuple, Protocol, runtime_checkable

from kdns.answers.chain import Plugin, Request, Sees, Serve, ServeResult
from kdns.answers.response import Response
from kdns.corefile.lines import Line
from kdns.dns.names import Labels, ZoneSet, encode_name, labels_of, text_of
from kdns.dns.query import AA, NOTIFY, Query
from kdns.dns.rdata import wire_of
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import FORMERR, IN, IXFR, REFUSED, SOA, TRANSFERS
from kdns.dns.wire import AUTHORITY, records
from kdns.dns.zone.difference import is_newer
from kdns.net import HostPort, client_address
from kdns.serverblocks.directive import Directive, Repeat, World
from kdns.serverblocks.stanza import Option, dns_address, ip, sets
from kdns.upstream.upstream import UpstreamError
from kdns.values import evolve

NAME: Final = "transfer"
ANYBODY: Final = "*"
MESSAGE_BYTES: Final = 4 << 10
"""The approximate size of a message before compression of names.

A message takes about 1 ms at once; larger ones would save no time (16 KiB take 4 ms).
"""
LEAST_SOA_BYTES: Final = 22
"""The rdata of an SOA record with the root as both names."""
NOTIFY_TIMEOUT_S: Final = 5.0
NOTIFY_ATTEMPTS: Final = 5
"""The most NOTIFY messages for a change if a secondary does not answer (RFC 1996 §3.6)."""


class Transfer(NamedTuple):
    """The content of a zone: its SOA, and all other records.

    `changes` since the requested serial are in the form of RFC 1995 §4; None if unknown.
    """

    soa: RRset
    records: Iterable[RRset]
    changes: Iterable[RRset] | None = None


@runtime_checkable
class Transferer(Protocol):
    """A plugin with zones that can be transferred."""

    def transfer_zones(self) -> Iterable[str]: ...

    def transfer(self, zone: str, serial: int | None) -> Transfer | None:
        """The zone of exactly this name, and the changes since `serial`; None for other names."""
        ...

    def on_zone_change(self, changed: Callable[[str], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class TransferConfig:
    """Secondaries `to` may transfer the zones and get NOTIFY, from the address `source`; `is_open`: all clients may."""

    zones: tuple[str, ...]
    to: tuple[HostPort, ...] = ()
    is_open: bool = False
    source: str = ""

    def allows(self, client: str) -> bool:
        return self.is_open or is_one_of(client, self.to)


def is_one_of(client: str, peers: Iterable[HostPort]) -> bool:
    """Ports are ignored."""
    address = client_address(client)
    return any(client_address(peer.host) == address for peer in peers)


def _to(config: TransferConfig, line: Line) -> TransferConfig:
    peers = tuple(dns_address(token) for token in line.args if token.text != ANYBODY)
    is_open = config.is_open or any(token.text == ANYBODY for token in line.args)
    return replace(config, to=(*config.to, *peers), is_open=is_open)


OPTIONS = {
    "to": Option("to HOST[:PORT]...|*", _to),
    "source": Option("source ADDRESS", sets("source", ip), once=True),
}


class Transfers(Plugin):
    """Transfers zones to permitted clients, and notifies secondaries of new versions.

    Differs: IXFR is answered with the changes if they are known, and over UDP with the SOA; CoreDNS sends the whole
    zone.
    """

    sees = Sees.PACKET

    def __init__(self, configs: tuple[TransferConfig, ...], world: World) -> None:
        self._configs = configs
        self._world = world
        self._pending: dict[tuple[HostPort, str], list[str]] = {}
        """Secondary and source address → zones to notify it of."""
        if any(config.to for config in configs):
            world.spawn(self._notify_all)

    def plain_zones(self) -> tuple[Labels, ...]:
        return ()

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        if query.qtype not in TRANSFERS or query.qclass != IN:
            return next(request)
        config = self.config_of(query.labels)
        if config is None:
            return next(request)
        if not config.allows(request.client[0]):
            return Response(REFUSED, plugin=NAME)
        serial = None
        if query.qtype == IXFR:
            serial = serial_of(query)
            if serial is None:
                return Response(FORMERR, plugin=NAME)
        elif not request.is_stream:
            return Response(REFUSED, plugin=NAME)
        transfer = self._transfer(query.name, serial)
        return next(request) if transfer is None else response_of(transfer, serial, is_stream=request.is_stream)

    def config_of(self, labels: Labels) -> TransferConfig | None:
        configs = {zone: config for config in reversed(self._configs) for zone in config.zones}
        zone = ZoneSet(configs).closest(labels)
        return None if zone is None else configs[text_of(zone)]

    def _transfer(self, zone: str, serial: int | None) -> Transfer | None:
        return next(filter(None, (plugin.transfer(zone, serial) for plugin in self._transferers())), None)

    def _transferers(self) -> list[Transferer]:
        return [plugin for plugin in self._world.plugins() if isinstance(plugin, Transferer)]

    async def _notify_all(self) -> None:
        for plugin in self._transferers():
            plugin.on_zone_change(self._note)
            for zone in plugin.transfer_zones():
                self._note(zone)

    def _note(self, zone: str) -> None:
        """Queues NOTIFY for the secondaries of a zone; a secondary gets one zone after the other."""
        config = self.config_of(labels_of(zone))
        for secondary in config.to if config else ():
            key = secondary, config.source if config else ""
            zones = self._pending.get(key)
            if zones is None:
                self._pending[key] = [zone]
                self._world.spawn(partial(self._notify, *key))
            elif zone not in zones:
                zones.append(zone)

    async def _notify(self, secondary: HostPort, source: str) -> None:
        zones = self._pending[secondary, source]
        try:
            while zones:
                zone = zones.pop(0)
                transfer = self._transfer(zone, None)
                if transfer:
                    await self._send_notify(zone, transfer.soa, secondary, source)
        finally:
            del self._pending[secondary, source]

    async def _send_notify(self, zone: str, soa: RRset, secondary: HostPort, source: str) -> None:
        """Retries with backoff until the secondary answers."""
        packet = notify_packet(zone, soa, self._world.random.randrange(1 << 16))
        reason = ""
        for attempt in range(NOTIFY_ATTEMPTS):
            try:
                response = await self._world.datagram(secondary, packet, NOTIFY_TIMEOUT_S * 2**attempt, source)
            except UpstreamError as error:
                reason = str(error)
                await self._world.sleep(float(attempt))
                continue
            if response[3] & 15:
                self._world.log(
                    "warning", "secondary refused NOTIFY", zone=zone, to=str(secondary), rcode=response[3] & 15
                )
            return
        self._world.log("warning", "secondary not notified", zone=zone, to=str(secondary), reason=reason)


def notify_packet(zone: str, soa: RRset, message_id: int) -> bytes:
    """With the zone's SOA as a hint (RFC 1996 §3.7)."""
    name = encode_name(labels_of(zone))
    rdata = wire_of(soa.rdata[0])
    answer = b"\xc0\x0c" + pack("!HHIH", SOA, IN, soa.ttl, len(rdata)) + rdata
    return pack("!HHHHHH", message_id, NOTIFY | AA, 1, 1, 0, 0) + name + pack("!HH", SOA, IN) + answer


def serial_of(query: Query) -> int | None:
    """The serial of an IXFR client: its SOA is in the authority section (RFC 1995 §3)."""
    try:
        return soa_serial(query.packet, AUTHORITY)
    except ValueError:
        return None


def soa_serial(packet: bytes, section: int) -> int | None:
    """Returns the serial of the first SOA in a section; ValueError for bytes that are no message."""
    for record in records(packet):
        if record.section == section and record.rtype == SOA and record.end - record.rdata_at >= LEAST_SOA_BYTES:
            return serial_at(packet, record.end)
    return None


def serial_at(packet: bytes, end: int) -> int:
    """The serial of an SOA record that ends at `end`."""
    return int.from_bytes(packet[end - 20 : end - 16], "big")


def response_of(transfer: Transfer, serial: int | None, *, is_stream: bool) -> Response:
    """The first message of a transfer with `more_messages`; only the SOA if the client is up to date.

    Over UDP only the SOA, which means that a transfer is possible over TCP (RFC 1995 §2).
    """
    soa = transfer.soa
    (rdata,) = soa.rdata
    current = rdata.serial if isinstance(rdata, Soa) else 0
    if not is_stream or (serial is not None and not is_newer(current, serial)):
        return Response(flags=AA, answer=(soa,), plugin=NAME)
    content = transfer.records if transfer.changes is None else transfer.changes
    messages = _messages(chain((soa,), content, (soa,)))
    return evolve(next(messages), more_messages=messages)


def _messages(rrsets: Iterable[RRset]) -> Iterator[Response]:
    part: list[RRset] = []
    size = 0
    for rrset in _pieces(rrsets):
        weight = _weight(rrset)
        if part and size + weight > MESSAGE_BYTES:
            yield Response(flags=AA, answer=tuple(part), plugin=NAME)
            part, size = [], 0
        part.append(rrset)
        size += weight
    yield Response(flags=AA, answer=tuple(part), plugin=NAME)


def _pieces(rrsets: Iterable[RRset]) -> Iterator[RRset]:
    for rrset in rrsets:
        if len(rrset.rdata) == 1 or _weight(rrset) <= MESSAGE_BYTES:
            yield rrset
        else:
            yield from (replace(rrset, rdata=(rdata,)) for rdata in rrset.rdata)


def _weight(rrset: RRset) -> int:
    """An upper estimate of an RRset's size in bytes."""
    owner = len(rrset.owner) + 12
    return sum(owner + len(wire_of(rdata)) for rdata in rrset.rdata)


DIRECTIVE: Final = Directive(
    "transfer [ZONES...]",
    TransferConfig,
    Transfers,
    OPTIONS,
    Repeat.ADD,
    needs={"to": "`to` is missing; expected addresses, as in `to 192.0.2.1`, or `to *`"},
)
