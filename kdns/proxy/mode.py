"""A mode of the dataplane: a room with a `Mode` in its `mode.py`, and a row in `modes.py`.

Everything that differs between modes is in this value, or in the two modules of the room that touch the machine:
`io/start.py` has a `Runtime` named RUNTIME, and `io/clean_up.py` clean-ups named CLEAN_UPS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.settings.section import Masquerading, Periods, Section, api_name
from kdns.proxy.settings.settings import Settings


class Switch(NamedTuple):
    """A field of a section that turns something on."""

    section: type[Section]
    field: str

    @property
    def path(self) -> str:
        return f"{self.section.PATH}.{api_name(self.field)}"

    def is_on(self, settings: Settings) -> bool:
        return bool(getattr(settings.section(self.section), self.field))

    def turned_off(self, settings: Settings) -> Settings:
        off: dict[str, Any] = {self.field: False}
        return settings.with_section(replace(settings.section(self.section), **off))


def _masquerades_all(mode: Mode, settings: Settings) -> bool:
    return settings.section(mode.masquerading).masquerade_all


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode.

    `room` is the package of its modules. `text` returns a plan as the mode's rules, for people and for tests.
    `masquerading` is the section of its mark, and of its periods too unless `own_periods` has these. `own` are its
    further sections.
    `sync_failures` and `cleanup_failures` are the metrics of rules that could not be applied or removed: kube-proxy's
    where it has this mode.
    `fallbacks` are the modes that take its place, in this order, where it is unsupported.
    `deprecated` is what a configuration with this mode is warned of. `is_common`: somebody may have the mode without
    having chosen it. `is_of_windows`: it works on Windows, and on no other system.
    `loopback_switch` turns node ports at loopback addresses on, where the semantics have some.
    `masquerades_all` says whether packets to all cluster IPs are masqueraded. `chosen_by` says how an endpoint is
    chosen, in words that follow "one of 3 endpoints,"; "" where each has the same chance.
    """

    semantics: Semantics
    room: str
    text: Callable[[Plan, Settings], str]
    masquerading: type[Masquerading]
    sync_failures: str
    cleanup_failures: str
    own_periods: type[Periods] | None = None
    own: tuple[type[Section], ...] = ()
    fallbacks: tuple[str, ...] = ()
    deprecated: str = ""
    is_common: bool = False
    is_of_windows: bool = False
    loopback_switch: Switch | None = None
    masquerades_all: Callable[[Mode, Settings], bool] = _masquerades_all
    chosen_by: Callable[[Settings], str] = lambda _settings: ""

    @property
    def name(self) -> str:
        return self.semantics.name

    @property
    def periods(self) -> type[Periods]:
        return self.own_periods or self.masquerading

    @property
    def sections(self) -> tuple[type[Section], ...]:
        return tuple(dict.fromkeys((self.masquerading, self.periods, *self.own)))
