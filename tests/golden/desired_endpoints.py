"""The Endpoints of a Service whose Pods come all at once; the controller learns of them one by one."""

from collections.abc import Iterable

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.endpoints.endpoints_controller import Addresses, endpoints_to_write


def desired_endpoints(service: Json, pods: Iterable[Json], existing: Json | None, trigger: str) -> Json | None:
    """As `endpoints_to_write`."""
    addresses = Addresses(service)
    for number, pod in enumerate(pods):
        addresses.put(("", str(number)), pod)
    return endpoints_to_write(service, addresses, existing, trigger)
