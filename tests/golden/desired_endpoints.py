"""The Endpoints of a Service whose Pods come all at once; the controller learns of them one by one."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.controlplane.endpoints import Addresses, wanted_endpoints
from kdns.controlplane.kinds import Json


def desired_endpoints(service: Json, pods: Iterable[Json], existing: Json | None, trigger: str) -> Json | None:
    """As `wanted_endpoints`."""
    addresses = Addresses(service)
    for number, pod in enumerate(pods):
        addresses.put(("", str(number)), pod)
    return wanted_endpoints(service, addresses, existing, trigger)
