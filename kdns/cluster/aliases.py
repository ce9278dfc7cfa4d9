"""ExternalName Services, which lead to other names: outside of the cluster, or to Services of its zone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kdns.cluster.objects import Key, Service

MAX_ALIASES: Final = 12
"""ExternalName Services that are followed from one to the next."""


class Alias(NamedTuple):
    """The ExternalName Services from the first to the last, and what Service that leads to; None for another name."""

    way: tuple[Key, ...]
    end: Key | None

    @property
    def loop(self) -> tuple[Key, ...]:
        """The Services that lead in a circle, the first again at the end; empty for none."""
        return (*self.way[self.way.index(self.end) :], self.end) if self.end in self.way else ()


def followed(services: Mapping[Key, Service], service: Service, domain: str) -> Alias:
    """Follows an ExternalName Service, at most `MAX_ALIASES` times."""
    way = [service.key]
    while True:
        end = service_named(service.spec.external_name, domain)
        following = services.get(end) if end else None
        if end in way or following is None or not following.is_external_name or len(way) > MAX_ALIASES:
            return Alias(tuple(way), end)
        way.append(following.key)
        service = following


def short_name_of(services: Mapping[Key, Service], service: Service) -> Key | None:
    """The Service that an externalName without the zone was meant for: no search list applies to it."""
    words = service.spec.external_name.lower().rstrip(".").split(".")
    key = (words[1] if len(words) > 1 else service.key[0]), words[0]
    return key if words[2:] in ([], ["svc"]) and key in services else None


def service_named(name: str, domain: str) -> Key | None:
    """Returns the Service whose full name this is in the zone `domain`, whether there is one or not."""
    front, is_below, rest = name.lower().rstrip(".").partition(".svc.")
    service, dot, namespace = front.partition(".")
    is_service = is_below and dot and rest == domain.rstrip(".") and "." not in namespace
    return (namespace, service) if is_service else None
