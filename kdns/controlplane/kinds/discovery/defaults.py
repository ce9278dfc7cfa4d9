"""The defaults of Endpoints and EndpointSlices (core/v1 and discovery/v1 defaults.go)."""

from __future__ import annotations

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.defaults import without_nulls


def default_endpoints(obj: Json) -> Json:
    """Sets the defaults of Endpoints: protocol TCP."""
    subsets = [
        {**subset, "ports": [{"protocol": "TCP", **port} for port in subset["ports"]]}
        if subset.get("ports")
        else subset
        for subset in obj.get("subsets") or []
    ]
    return {**obj, "subsets": subsets} if subsets else {key: value for key, value in obj.items() if key != "subsets"}


def default_endpoint_slice(obj: Json) -> Json:
    """Sets the defaults of an EndpointSlice: protocol TCP, an empty port name, conditions."""
    made = without_nulls(obj)
    if ports := made.get("ports"):
        made["ports"] = [{"name": "", "protocol": "TCP", **without_nulls(port)} for port in ports]
    if endpoints := made.get("endpoints"):
        made["endpoints"] = [
            endpoint if "conditions" in endpoint else {**endpoint, "conditions": {}} for endpoint in endpoints
        ]
    return made
