"""records [ZONES…] { RECORD… }: zones with their records in the Corefile, one on a line, as in a zone file.

As CoreDNS's external plugin of that name.
Differs: answers are like those of `file`, with wildcards, CNAMEs and delegations; CoreDNS only compares name and type.
Differs: a word in quotes is one string of a TXT record; CoreDNS drops the quotes, and splits it at blanks.
Differs: a record in none of the zones is reported, and a CNAME at an apex is a mistake (RFC 1034 §3.6.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kdns.answers.response import Response
from kdns.corefile.address import all_zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import SOA
from kdns.dns.zone.lookup import Lookup
from kdns.dns.zone.zone import Zone, ZoneError
from kdns.errors import DoubtfulError
from kdns.plugins.sources.transfer import Transfer
from kdns.plugins.sources.zones.authority import Authority, ServedZone
from kdns.serverblocks.directive import Directive, World

NAME: Final = "records"
TTL_S: Final = 3600
"""The default TTL."""
NO_SOA: Final = Soa(".", ".", 0, 0, 0, 0, 0)
"""Placeholder for a zone without SOA; not in any answer."""

_NEEDS_QUOTES: Final = re.compile(r'[^"]*[\s;][^"]*|')


@dataclass(frozen=True, slots=True)
class RecordsConfig:
    """The zones, the records of each, and mistakes: lines with records of no zone."""

    zones: tuple[str, ...]
    records: tuple[tuple[RRset, ...], ...]
    mistakes: tuple[DoubtfulError, ...] = ()


def parse(stanza: Stanza, zones: tuple[str, ...]) -> RecordsConfig:
    zones = all_zones(stanza.args) or zones
    records: dict[str, list[RRset]] = {zone: [] for zone in zones}
    mistakes: list[DoubtfulError] = []
    for line in stanza.block:
        by_zone = {zone: _records(line, zone) for zone in zones}
        for zone, rrsets in by_zone.items():
            records[zone] += rrsets
        if not any(by_zone.values()):
            reason = f"the record is not in {', '.join(zones)}; the line is ignored"
            mistakes.append(DoubtfulError(line.path, line.line, line.name, reason))
    try:
        for zone in zones:
            _zone(zone, records[zone])
    except ZoneError as error:
        raise stanza.error(str(error)) from error
    return RecordsConfig(zones, tuple(map(tuple, records.values())), tuple(mistakes))


def _records(line: Line, zone: str) -> tuple[RRset, ...]:
    """Relative names of the line are completed with the zone; CorefileError for text that is not a record."""
    from kdns.dns.zonefile import ZoneFileError, parse_zone  # noqa: PLC0415 - only where it is used

    try:
        return parse_zone(f"$TTL {TTL_S}\n{' '.join((line.name, *map(_word, line.args)))}\n", zone)
    except ZoneFileError as error:
        raise line.error(f"invalid record: {error.reason}") from error


def _word(token: Token) -> str:
    return f'"{token.text}"' if token.quoted and _NEEDS_QUOTES.fullmatch(token.text) else token.text


def _zone(name: str, records: Iterable[RRset]) -> Zone:
    """With NO_SOA if there is no SOA."""
    records = tuple(records)
    has_soa = any(rrset.rtype == SOA and rrset.owner == name for rrset in records)
    return Zone(name, records if has_soa else (RRset(name, SOA, 0, (NO_SOA,)), *records))


class Records(Authority):
    """The zones of a stanza. A zone without SOA has none in its negative answers, and is not transferred."""

    def __init__(self, config: RecordsConfig, world: World) -> None:
        super().__init__(NAME, world)
        zones = zip(config.zones, config.records, strict=True)
        self.serve_zones(ServedZone(name, zone=_zone(name, records)) for name, records in zones)

    def transfer_zones(self) -> tuple[str, ...]:
        return tuple(name for name in super().transfer_zones() if self.transfer(name, None))

    def transfer(self, zone: str, serial: int | None) -> Transfer | None:
        transfer = super().transfer(zone, serial)
        return transfer if transfer and transfer.soa.rdata != (NO_SOA,) else None

    def _response(self, result: Lookup, served: ServedZone) -> Response:
        answer, authority = map(_without_no_soa, (result.answer, result.authority))
        return super()._response(result._replace(answer=answer, authority=authority), served)


def _without_no_soa(section: tuple[RRset, ...]) -> tuple[RRset, ...]:
    return tuple(rrset for rrset in section if rrset.rdata != (NO_SOA,))


DIRECTIVE: Final = Directive(
    "records [ZONES...]",
    RecordsConfig,
    Records,
    parse=parse,
    warnings=lambda config: config.mistakes,
    warned="record ignored",
)
