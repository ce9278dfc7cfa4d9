"""A Service, its Pods, and its Endpoints when the Pods come all at once; the controller learns of them one by one."""

from collections.abc import Iterable

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.endpoints.endpoints_controller import Addresses, endpoints_to_write


def desired_endpoints(service: Json, pods: Iterable[Json], existing: Json | None, trigger: str) -> Json | None:
    """As `endpoints_to_write`."""
    addresses = Addresses(service)
    for number, pod in enumerate(pods):
        addresses.put(("", str(number)), pod)
    return endpoints_to_write(service, addresses, existing, trigger)


def service(*, meta: Json | None = None, **spec: object) -> Json:
    """Service svc in namespace x, of TCP port 80 to port `web` of Pods with app=a."""
    ports = [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"}]
    base = {"selector": {"app": "a"}, "ports": ports, "clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"]}
    return {"metadata": {"name": "svc", "namespace": "x", "uid": "u", **(meta or {})}, "spec": {**base, **spec}}


def pod(
    number: int = 1,
    *,
    ready: bool = True,
    since: str = "",
    going: bool = False,
    phase: str = "Running",
    **spec: object,
) -> Json:
    """Pod p1, … on node n1 with address 10.244.0.1, …, whose container has port 8080 by the name `web`."""
    condition = {"type": "Ready", "status": str(ready), **({"lastTransitionTime": since} if since else {})}
    ips = [{"ip": f"10.244.{number // 250}.{number % 250}"}]
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {}
    containers = [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]
    return {
        "metadata": {"name": f"p{number}", "namespace": "x", "labels": {"app": "a"}, **deleted},
        "spec": {"nodeName": "n1", "containers": containers, **spec},
        "status": {"phase": phase, "podIPs": ips, "conditions": [condition]},
    }
