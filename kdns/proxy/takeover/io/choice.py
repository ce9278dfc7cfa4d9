"""Which mode runs: that of the settings, or where it cannot work here, the first of its fallbacks that can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

from kdns.errors import ApplyError
from kdns.proxy.mode import Mode
from kdns.proxy.modes import MODES
from kdns.proxy.settings.section import Masquerading
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Runtime


@dataclass(frozen=True, slots=True)
class Choice:
    """The mode that runs, with the settings in effect. `reasons` say why modes that come before it cannot work."""

    runtime: Runtime
    settings: Settings
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def mode(self) -> Mode:
        return self.runtime.mode

    @property
    def fallback(self) -> str:
        """A sentence about the fallback; "" if the mode is that of the settings."""
        if not self.reasons:
            return ""
        why = "; ".join(f"mode {name} cannot work here: {reason}" for name, reason in self.reasons.items())
        return f"mode {self.mode.name} takes the place of mode {next(iter(self.reasons))}: {why}"


async def choice(settings: Settings, runtime_of: Callable[[str], Runtime]) -> Choice:
    """Returns the choice among the modes.

    ApplyError with all reasons if no mode can work here.

    Differs: kube-proxy up to 1.25 fell back from ipvs to iptables and userspace, and since 1.26 it ends.
    """
    reasons: dict[str, str] = {}
    for name in (settings.mode, *runtime_of(settings.mode).mode.fallbacks):
        in_effect = in_mode(settings, name)
        if reason := await runtime_of(name).unsupported(in_effect):
            reasons[name] = reason
            continue
        return Choice(runtime_of(name), in_effect, reasons)
    if len(reasons) == 1:
        raise ApplyError((settings.mode,), reasons[settings.mode])
    raise ApplyError((settings.mode,), "; ".join(f"mode {name}: {reason}" for name, reason in reasons.items()))


def in_mode(settings: Settings, name: str) -> Settings:
    """Returns the settings where another mode takes the place of the configured one.

    A mode whose section has defaults only gets the mark and the periods of the section that the configured mode has.
    """
    if name == settings.mode:
        return settings
    in_effect = replace(settings, mode=name)
    before, now = (settings.section(MODES[mode].masquerading) for mode in (settings.mode, name))
    if type(before) is type(now) or now != type(now)():
        return in_effect
    shared = {field.name: getattr(before, field.name) for field in fields(Masquerading)}
    return in_effect.with_section(replace(now, **shared))
