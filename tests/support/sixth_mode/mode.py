"""Mode sixth, which greets Services."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from kdns.proxy.mode import Mode
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.semantics import TCP_UDP, Semantics
from kdns.proxy.settings.section import Flag, Masquerading, Problem, invalid
from kdns.proxy.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class SixthSettings(Masquerading):
    """The section `sixth`."""

    PATH: ClassVar[str] = "sixth"
    FLAGS: ClassVar[tuple[Flag, ...]] = (
        Flag("sixth-greeting", "string", "greeting", "Mode sixth: how Services are greeted.", is_of_plan=True),
    )

    greeting: str = "hello"

    def problems(self, *, is_used: bool) -> Iterator[Problem]:
        if is_used:
            yield from self.bit_problems()
            if self.greeting == "boo":
                yield invalid("sixth.greeting", self.greeting, "must be friendly")


def _text(plan: Plan, settings: Settings) -> str:
    greeting = settings.section(SixthSettings).greeting
    return "".join(f"{greeting}, {name}\n" for name in plan.ipv4.ports)


MODE: Final = Mode(
    Semantics("sixth", protocols=TCP_UDP, refuses=False),
    "sixth_mode",
    _text,
    SixthSettings,
    sync_failures="kdns_proxy_sixth_sync_failures",
    cleanup_failures="kdns_proxy_sixth_cleanup_failures",
    fallbacks=("userspace",),
    chosen_by=lambda _settings: "by a sixth sense",
)
