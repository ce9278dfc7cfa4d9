"""Kinds of the API: those that code names, and an index of the kinds that one API server serves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kdns.controlplane.apimachinery.structural import Schema

Json: TypeAlias = dict[str, Any]
"""An API object as decoded JSON, with every field that the client sent."""


@dataclass(slots=True, eq=False)
class Kind:
    """One served resource, in the terms of API discovery (meta/v1 APIResource). Kinds are compared by identity.

    Only CustomKinds changes a kind: that of a CustomResourceDefinition, which has a `schema` and whose `source` is its
    version in the definition.

    `deprecation` is the text of the Warning header of every request. `singular` and `list_kind` follow from `kind` if
    they are "".

    A kind that is served by conversion has `stored_as`, the kind of its stored objects. A review is answered and not
    stored. Nothing in kdns acts on objects of an inert kind.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    stored_as: Kind | None = None
    is_review: bool = False
    is_inert: bool = False
    schema: Schema | None = None
    source: Json | None = None
    deprecation: str = ""
    singular: str = ""
    list_kind: str = ""
    api_version: str = field(init=False)
    """`v1` or `group/version`, as objects spell it."""

    resource: str = field(init=False)
    """`plural` or `plural.group`, as messages and kubectl spell it (GroupResource)."""

    def __post_init__(self) -> None:
        self.api_version = f"{self.group}/{self.version}" if self.group else self.version
        self.resource = f"{self.plural}.{self.group}" if self.group else self.plural
        self.singular = self.singular or self.kind.lower()
        self.list_kind = self.list_kind or f"{self.kind}List"

    @property
    def stored_kind(self) -> Kind:
        return self.stored_as or self

    @property
    def is_stored(self) -> bool:
        return self.stored_as is None and not self.is_review


NAMESPACE = Kind("", "v1", "Namespace", "namespaces", False, ("ns",), ("status", "finalize"))
SERVICE = Kind("", "v1", "Service", "services", True, ("svc",), ("status",), ("all",))
ENDPOINTS = Kind(
    *("", "v1", "Endpoints", "endpoints", True, ("ep",)),
    deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
)
POD = Kind("", "v1", "Pod", "pods", True, ("po",), ("status", "eviction", "binding"), ("all",))
NODE = Kind("", "v1", "Node", "nodes", False, ("no",), ("status",))
EVENT = Kind("", "v1", "Event", "events", True, ("ev",))
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", True, ("cm",))
SECRET = Kind("", "v1", "Secret", "secrets")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", True, ("sa",))
JOB = Kind("batch", "v1", "Job", "jobs", True, (), ("status",), ("all",))
SERVICE_CIDR = Kind("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", False, (), ("status",))
IP_ADDRESS = Kind("networking.k8s.io", "v1", "IPAddress", "ipaddresses", False, ("ip",))
REPLICATION_CONTROLLER = Kind(
    "", "v1", "ReplicationController", "replicationcontrollers", True, ("rc",), ("status", "scale"), ("all",)
)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", True, ("deploy",), ("status", "scale"), ("all",))
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets", True, ("rs",), ("status", "scale"), ("all",))
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets", True, ("sts",), ("status", "scale"), ("all",))
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets", True, ("ds",), ("status",), ("all",))
CONTROLLER_REVISION = Kind("apps", "v1", "ControllerRevision", "controllerrevisions")

WORKLOADS: tuple[Kind, ...] = (REPLICATION_CONTROLLER, DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET)
"""The kinds whose controllers replace Pods that are gone."""

DEFINITION = Kind(
    *("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"),
    *(False, ("crd", "crds"), ("status",), ("api-extensions",)),
)

_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
SELF_REVIEW = Kind(_AUTHENTICATION, "v1", "SelfSubjectReview", "selfsubjectreviews", False, is_review=True)
TOKEN_REVIEW = Kind(_AUTHENTICATION, "v1", "TokenReview", "tokenreviews", False, is_review=True)
LOCAL_ACCESS_REVIEW = Kind(
    _AUTHORIZATION, "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", is_review=True
)
SELF_ACCESS_REVIEW = Kind(
    _AUTHORIZATION, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False, is_review=True
)
RULES_REVIEW = Kind(_AUTHORIZATION, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", False, is_review=True)
ACCESS_REVIEW = Kind(_AUTHORIZATION, "v1", "SubjectAccessReview", "subjectaccessreviews", False, is_review=True)


class Kinds:
    """The kinds that one API server serves, indexed by their names. Kinds come and go while it runs.

    `changes` counts the changes per apiVersion, so that documents built from the kinds know whether they are stale.
    """

    definer: tuple[Kind, Callable[[Json], None]] | None = None
    """The kind whose objects define further kinds, and the function that adds the kind of one such object."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self.changes: Counter[str] = Counter()
        self._kinds: dict[Kind, None] = {}
        self._by_type: dict[tuple[str, str], Kind] = {}
        self.by_plural: dict[tuple[str, str], Kind] = {}
        """By apiVersion and plural."""
        self._by_resource: dict[str, Kind] = {}
        for kind in kinds:
            self._learn(kind if kind.is_stored else None, (kind,))

    def _learn(self, stored: Kind | None, versions: Iterable[Kind]) -> None:
        if stored:
            self._by_resource[stored.resource] = stored
        for kind in versions:
            self.changes[kind.api_version] += 1
            self._kinds[kind] = None
            self._by_type[kind.api_version, kind.kind] = kind
            self.by_plural[kind.api_version, kind.plural] = kind

    def _forget(self, stored: Kind) -> None:
        versions = [kind for kind in self._kinds if kind.stored_kind is stored]
        for kind in versions:
            self.changes[kind.api_version] += 1
            del self._kinds[kind], self._by_type[kind.api_version, kind.kind]
            del self.by_plural[kind.api_version, kind.plural]
        del self._by_resource[stored.resource]

    def __iter__(self) -> Iterator[Kind]:
        """Every kind that has URLs: stored kinds, kinds served by conversion, and reviews."""
        return iter(tuple(self._kinds))

    def __contains__(self, kind: object) -> bool:
        """True for served kinds, and for stored kinds whose served versions are others."""
        return isinstance(kind, Kind) and (kind in self._kinds or self.by_resource(kind.resource) is kind)

    @property
    def stored(self) -> tuple[Kind, ...]:
        """The kinds of stored objects, each once, whatever versions they are served in."""
        return tuple(self._by_resource.values())

    @property
    def namespaced(self) -> tuple[Kind, ...]:
        return tuple(kind for kind in self.stored if kind.namespaced)

    def by_type(self, api_version: str, kind: str) -> Kind | None:
        return self._by_type.get((api_version, kind))

    def by_resource(self, resource: str) -> Kind | None:
        """The stored kind of `plural` or `plural.group`."""
        return self._by_resource.get(resource)

    def by_definition(self, name: str) -> Kind | None:
        """The stored kind of a CustomResourceDefinition; None if it is not served, or built in."""
        kind = self._by_resource.get(name)
        return kind if kind and kind.schema is not None else None
