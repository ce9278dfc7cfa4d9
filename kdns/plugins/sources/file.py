"""file DBFILE [ZONES...] { reload DURATION | reload_by_mtime | fallthrough [ZONES...] | upstream }: a master file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from posixpath import dirname, join
from typing import Final

from kdns.dns.names import ZoneSet
from kdns.dns.zone.difference import Difference, is_newer
from kdns.dns.zone.zone import Zone, ZoneError
from kdns.errors import CorefileError, first_of
from kdns.plugins.sources.zones.authority import Authority, ServedZone, differences_to
from kdns.serverblocks.directive import Directive, Repeat, UnreadableFileError, World
from kdns.serverblocks.stanza import FALLTHROUGH, UPSTREAM, Option, duration_s, flag, path_of, sets
from kdns.watch import watch

NAME: Final = "file"
RELOAD_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class FileConfig:
    """One file and its zones, checked every `reload_s` seconds, 0: never.

    With `ignores_serial` a changed text is a new version even if its serial is the same.
    """

    path: str
    zones: tuple[str, ...]
    reload_s: float = RELOAD_S
    ignores_serial: bool = False
    fallthrough: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a zone, and its differences to the previous one."""

    zone: Zone
    differences: tuple[Difference, ...] = ()


OPTIONS: Final = {
    "reload": Option("reload DURATION", sets("reload_s", duration_s)),
    "reload_by_mtime": Option("reload_by_mtime", flag("ignores_serial")),
    "fallthrough": FALLTHROUGH,
    "upstream": UPSTREAM,
}


def zone_of(text: str, path: str, name: str, read: Callable[[str], str]) -> Zone:
    """`read` reads included files; CorefileError for mistakes."""
    from kdns.dns.zonefile import ZoneFileError, parse_zone  # noqa: PLC0415 - only where it is used

    try:
        return Zone(name, parse_zone(text, name, path, partial(_included, read)))
    except ZoneFileError as error:
        mistakes = (error, *error.others)
        raise first_of(CorefileError(at.path, at.line, "", at.reason) for at in mistakes) from error
    except ZoneError as error:
        raise first_of(CorefileError(path, 0, "", reason) for reason in error.reasons) from error


def _included(read: Callable[[str], str], path: str, name: str) -> tuple[str, str]:
    """The path of an included file is relative to the folder of the including file."""
    included = join(dirname(path), name)
    try:
        return included, read(included)
    except CorefileError as error:
        raise ValueError(f"$INCLUDE {name}: {error.reason}") from error


def newer_version(path: str, served: ServedZone, world: World, *, ignores_serial: bool = False) -> Version | None:
    """The zone of the file if its serial, or its text, differs from the served one; None otherwise.

    The same text is not parsed again, unless it includes files.
    """
    digest = sha256()

    def read(name: str) -> str:
        text = world.read_text(name)
        digest.update(text.encode())
        return text

    text = read(path)
    if served.zone and digest.digest() == served.digest and "$INCLUDE" not in text.upper():
        return None
    zone = zone_of(text, path, served.name, read)
    is_same_text = digest.digest() == served.digest
    served.digest = digest.digest()
    if served.zone and (is_same_text if ignores_serial else zone.serial == served.zone.serial):
        return None
    return Version(
        zone, differences_to(served, zone) if served.zone and is_newer(zone.serial, served.zone.serial) else ()
    )


class ZoneFiles(Authority):
    """Zones of files, which are checked at intervals. An unusable file does not change the zone.

    Differs: `fallthrough` applies to the zones of its own stanza; in CoreDNS to those of all stanzas in the block.
    """

    def __init__(self, configs: tuple[FileConfig, ...], world: World) -> None:
        super().__init__(NAME, world)
        report = partial(world.report, "zone file not usable", answers="as before")
        by_name: dict[str, ServedZone] = {}
        for config in configs:
            fallthrough = ZoneSet(config.fallthrough)
            zones = [ServedZone(zone, fallthrough) for zone in config.zones]
            by_name |= {served.name: served for served in zones}
            placed = replace(config, path=world.path(config.path))
            world.prepare(partial(self._load, placed, zones))
            for served in zones if config.reload_s else ():
                refresh = partial(self._refresh, placed, served)
                world.spawn(partial(watch, world.sleep, config.reload_s, refresh, report))
        self.serve_zones(by_name.values())

    async def _load(self, config: FileConfig, zones: list[ServedZone]) -> None:
        """A missing file does not prevent the start if it is checked again later."""
        for served in zones:
            try:
                await self._refresh(config, served)
            except UnreadableFileError as error:
                if not config.reload_s:
                    raise
                self._world.report("zone file not readable", [error], zone=served.name, again_in_s=config.reload_s)

    async def _refresh(self, config: FileConfig, served: ServedZone) -> None:
        path = config.path
        load = partial(newer_version, path, served, self._world, ignores_serial=config.ignores_serial)
        version = await self._world.in_thread(load)
        if version:
            self.renew(served, version.zone, version.differences)
            ignored = len(version.zone.ignored)
            self._world.log("info", "zone loaded", zone=served.name, path=path, serial=version.zone.serial)
            if ignored:
                self._world.log("warning", "records outside of the zone ignored", zone=served.name, owners=ignored)


DIRECTIVE: Final = Directive(
    "file DBFILE [ZONES...]", FileConfig, ZoneFiles, OPTIONS, Repeat.ADD, path_of, example="db"
)
