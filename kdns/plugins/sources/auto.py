"""auto [ZONES...] { directory DIR [REGEXP ORIGIN_TEMPLATE] | reload DURATION | upstream }: a zone for each file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from posixpath import basename
from typing import Final

from kdns.answers.chain import Request, Serve, ServeResult
from kdns.answers.response import Response
from kdns.corefile.address import zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line
from kdns.dns.names import ZoneSet, labels_of
from kdns.dns.types import REFUSED
from kdns.errors import CorefileError
from kdns.plugins.sources.file import RELOAD_S, Version, newer_version
from kdns.plugins.sources.zones.authority import Authority, ServedZone
from kdns.serverblocks.directive import Directive, Repeat, UnreadableFileError, World
from kdns.serverblocks.patterns import Pattern, compiled, regex
from kdns.serverblocks.stanza import UPSTREAM, Option, duration_s, path_of, sets
from kdns.watch import watch

NAME: Final = "auto"
DEFAULT_PATTERN: Final = r"db\.(.*)"
DEFAULT_TEMPLATE: Final = "{1}"
_GROUP: Final = re.compile(r"\{(\d+)\}")


@dataclass(frozen=True, slots=True)
class AutoConfig:
    """Files in `directory` that match `pattern`; `template` makes the zone's name of the groups."""

    zones: tuple[str, ...]
    directory: str = ""
    pattern: str = DEFAULT_PATTERN
    template: str = DEFAULT_TEMPLATE
    reload_s: float = RELOAD_S


def _directory(config: AutoConfig, line: Line) -> AutoConfig:
    if len(line.args) == 2:
        raise line.args[1].error("expected a template of the zone's name, such as {1}, after the regular expression")
    config = replace(config, directory=path_of(line.args[0]))
    if len(line.args) == 1:
        return config
    _, pattern, template = line.args
    regex(pattern)
    return replace(config, pattern=pattern.text, template=template.text)


OPTIONS: Final = {
    "directory": Option("directory DIR [REGEXP ORIGIN_TEMPLATE]", _directory),
    "reload": Option("reload DURATION", sets("reload_s", duration_s)),
    "upstream": UPSTREAM,
}


def origin_of(path: str, pattern: Pattern, template: str) -> str | None:
    """None if the file name does not match, or does not give the name of a zone."""
    match = pattern.search(basename(path))
    if match is None:
        return None
    groups = (match.group(0), *match.groups())
    name = _GROUP.sub(lambda number: groups[int(number[1])] or "" if int(number[1]) < len(groups) else "", template)
    try:
        return zones(Token(path, 0, name))[0] if name else None
    except CorefileError:
        return None


def files_by_zone(paths: Iterable[str], config: AutoConfig, pattern: Pattern) -> tuple[dict[str, str], dict[str, str]]:
    chosen: dict[str, str] = {}
    left_out: dict[str, str] = {}
    within = ZoneSet(config.zones)
    for path in paths:
        name = origin_of(path, pattern, config.template)
        if name is None or labels_of(name) not in within:
            continue
        if name in chosen:
            left_out[path] = name
        else:
            chosen[name] = path
    return chosen, left_out


@dataclass(slots=True)
class Scan:
    """The result of a scan of the directory; `chosen` is zone → file, `left_out` further file → its zone."""

    chosen: dict[str, str]
    left_out: dict[str, str]
    versions: dict[str, Version] = field(default_factory=dict)
    mistakes: list[CorefileError] = field(default_factory=list)


def scan(config: AutoConfig, served_zones: dict[str, ServedZone], world: World) -> Scan:
    pattern = compiled(config.pattern)
    result = Scan(*files_by_zone(world.files_below(config.directory), config, pattern))
    for name, path in result.chosen.items():
        known = served_zones.setdefault(name, ServedZone(name))
        try:
            version = newer_version(path, known, world)
        except CorefileError as error:
            result.mistakes += (error, *error.others)
        else:
            if version:
                result.versions[name] = version
    return result


class AutoZones(Authority):
    """The zones of directories; zones come and go with their files.

    Differs: a name in ZONES without a file is REFUSED, also for zone transfers.
    """

    def __init__(self, configs: tuple[AutoConfig, ...], world: World) -> None:
        super().__init__(NAME, world)
        self._within = ZoneSet(zone for config in configs for zone in config.zones)
        self._of_config: list[dict[str, ServedZone]] = []
        self._reported: dict[AutoConfig, tuple[object, ...]] = {}
        """The errors of the last scan."""
        for config in configs:
            placed = replace(config, directory=world.path(config.directory))
            served_zones: dict[str, ServedZone] = {}
            self._of_config.append(served_zones)
            refresh = partial(self._refresh, placed, served_zones)
            world.prepare(refresh)
            if config.reload_s:
                report = partial(self._report, placed, "directory not usable")
                world.spawn(partial(watch, world.sleep, config.reload_s, refresh, report))

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        if query.labels in self._within and self.zone_of(query.labels) is None:
            return Response(REFUSED, plugin=NAME)
        return super().serve(request, next)

    async def _refresh(self, config: AutoConfig, served_zones: dict[str, ServedZone]) -> None:
        known = dict(served_zones)
        try:
            result = await self._world.in_thread(partial(scan, config, known, self._world))
        except UnreadableFileError as error:
            self._report(config, "directory not readable", [error])
            return
        for name in served_zones.keys() - result.chosen.keys():
            del served_zones[name]
        for name, version in result.versions.items():
            zone = served_zones.setdefault(name, known[name])
            self.renew(zone, version.zone, version.differences)
            self._world.log("info", "zone loaded", zone=name, path=result.chosen[name], serial=version.zone.serial)
        duplicates = [
            {"path": path, "zone": name, "used": result.chosen[name]} for path, name in result.left_out.items()
        ]
        self._report(config, "zone file not usable", result.mistakes, duplicates)
        self.serve_zones(zone for by_name in self._of_config for zone in by_name.values() if zone.zone)

    def _report(
        self,
        config: AutoConfig,
        event: str,
        mistakes: Sequence[CorefileError],
        duplicates: Sequence[Mapping[str, str]] = (),
    ) -> None:
        before = self._reported.get(config, ())
        self._reported[config] = (*map(str, mistakes), *duplicates)
        if new := [error for error in mistakes if str(error) not in before]:
            self._world.report(event, new)
        for facts in duplicates:
            if facts not in before:
                self._world.log("warning", "zone has another file", **facts)


DIRECTIVE: Final = Directive(
    "auto [ZONES...]",
    AutoConfig,
    AutoZones,
    OPTIONS,
    Repeat.ADD,
    needs={"directory": "the directory is missing; expected an option such as `directory /etc/zones`"},
)
