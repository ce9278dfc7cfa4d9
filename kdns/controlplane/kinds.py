"""The resources the control plane serves, as one table: discovery, routing, storage and printing read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
"""An API object as JSON: every field the client sent is kept."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One served resource, in the words of API discovery (meta/v1 APIResource)."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def singular(self) -> str:
        """The name kubectl accepts beside the plural."""
        return self.kind.lower()

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`, as objects spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The kind of a collection."""
        return f"{self.kind}List"


NAMESPACE = Kind("", "v1", "Namespace", "namespaces", False, ("ns",), ("status", "finalize"))
SERVICE = Kind("", "v1", "Service", "services", True, ("svc",), ("status",), ("all",))
ENDPOINTS = Kind("", "v1", "Endpoints", "endpoints", True, ("ep",))
POD = Kind("", "v1", "Pod", "pods", True, ("po",), ("status",), ("all",))
NODE = Kind("", "v1", "Node", "nodes", False, ("no",), ("status",))
EVENT = Kind("", "v1", "Event", "events", True, ("ev",))
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")

KINDS: tuple[Kind, ...] = (NAMESPACE, SERVICE, ENDPOINTS, POD, NODE, EVENT, ENDPOINT_SLICE)
