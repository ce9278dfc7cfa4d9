"""ready [ADDRESS] { monitor until-ready|continuously }: /ready answers 200 when names can be answered, else 503."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kdns.corefile.address import host_port
from kdns.corefile.lines import Stanza
from kdns.dnsserver.directive import Directive, Page, Setup
from kdns.dnsserver.stanza import Option, choice, configured, count, sets
from kdns.net import HostPort

MONITORS = ("until-ready", "continuously")
DEFAULT_ADDRESS = HostPort("", 8181)


@dataclass(frozen=True, slots=True)
class ReadyConfig:
    """Where /ready is served, and whether a part that was ready once may become unready again."""

    address: HostPort = DEFAULT_ADDRESS
    monitor: str = "until-ready"


OPTIONS = {"monitor": Option("monitor until-ready|continuously", sets("monitor", choice, MONITORS))}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ReadyConfig:
    """What a `ready` stanza says; raises CorefileError."""
    count(stanza, "ready [ADDRESS]")
    config = ReadyConfig(host_port(stanza.args[0])) if stanza.args else ReadyConfig()
    return configured(config, stanza, OPTIONS)


def build(config: ReadyConfig, setup: Setup) -> None:
    """Serves /ready."""
    setup.site(config.address, "/ready", page(setup.unready, continuously=config.monitor == "continuously"))


def page(unready: Callable[[], tuple[str, ...]], *, continuously: bool) -> Page:
    """200, or 503 with the names of what is not ready; what was ready once stays so unless `continuously`."""
    was_ready = False

    def ready() -> tuple[int, str]:
        nonlocal was_ready
        waiting = () if was_ready and not continuously else unready()
        was_ready = not waiting
        return (503, "\n".join(waiting)) if waiting else (200, "OK")

    return ready


DIRECTIVE = Directive("ready", parse, build, options=OPTIONS)
