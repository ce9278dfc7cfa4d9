"""Which mode runs: that of the settings, or where it cannot work here, the first of its fallbacks that can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kdns.errors import ApplyError, InputError
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Mode


@dataclass(frozen=True, slots=True)
class Choice:
    """The mode that runs, with the settings in effect. `reasons` say why modes that come before it cannot work."""

    mode: Mode
    settings: Settings
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def fallback(self) -> str:
        """A sentence about the fallback; "" if the mode is that of the settings."""
        if not self.reasons:
            return ""
        why = "; ".join(f"mode {name} cannot work here: {reason}" for name, reason in self.reasons.items())
        return f"mode {self.mode.name} takes the place of mode {next(iter(self.reasons))}: {why}"


async def choice(settings: Settings, modes: Mapping[str, Mode]) -> Choice:
    """Returns the choice among the modes.

    ApplyError with all reasons if no mode can work here, InputError for an unknown mode.

    Differs: kube-proxy up to 1.25 fell back from ipvs to iptables and userspace, and since 1.26 it ends.
    """
    require_mode(settings, modes)
    reasons: dict[str, str] = {}
    for name in (settings.mode, *modes[settings.mode].fallbacks):
        in_effect = settings.in_mode(name)
        if reason := await modes[name].unsupported(in_effect):
            reasons[name] = reason
            continue
        return Choice(modes[name], in_effect, reasons)
    if len(reasons) == 1:
        raise ApplyError((settings.mode,), reasons[settings.mode])
    raise ApplyError((settings.mode,), "; ".join(f"mode {name}: {reason}" for name, reason in reasons.items()))


def require_mode(settings: Settings, modes: Mapping[str, Mode]) -> None:
    """InputError if the settings' mode is none of the modes."""
    if settings.mode not in modes:
        raise InputError(f"unknown mode {settings.mode}; expected one of {', '.join(modes)}")
