"""The API server to watch, and the objects to watch."""

from __future__ import annotations

from dataclasses import dataclass, field

from kdns.cluster.objects import EndpointSlice, Namespace, Node, Object, Service, ServiceCIDR

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class ClientTLS:
    """The PEM files of the option `tls`: client certificate, its key, and the server's CA; "" for none."""

    cert: str = ""
    key: str = ""
    ca: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """The location of the API: a kubeconfig (or several, as in $KUBECONFIG), else an endpoint, else the Pod's account.

    `server` replaces the URL of the kubeconfig, `token` is the bearer token for an endpoint. `others` are the user's
    alternatives, for the message about a missing service account.
    `qps` and `burst` limit the request rate, `max_inflight` the concurrent requests except watches; 0: no limit.
    Differs: CoreDNS sends 5 requests a second by default, which delays paged lists; kdns has no limit by default.
    """

    kubeconfig: str = ""
    context: str = ""
    endpoint: str = ""
    tls: ClientTLS = ClientTLS()
    service_account: str = SERVICE_ACCOUNT
    qps: float = 0.0
    burst: int = 0
    max_inflight: int = 0
    server: str = ""
    token: str = field(default="", repr=False)
    others: str = "`kubeconfig FILE` or `endpoint URL`"


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The file of a cluster's snapshot, which is not used if it is older than `max_age_s`."""

    path: str
    max_age_s: float


@dataclass(frozen=True, slots=True)
class Scope:
    """The kinds to watch, with their selectors; `labels` is for Services, EndpointSlices and Pods, as in CoreDNS.

    `node` is the name of the only Node to watch.
    """

    kinds: tuple[type[Object], ...] = (Namespace, Service, EndpointSlice)
    labels: str = ""
    namespace_labels: str = ""
    node: str = ""

    def fields(self, kind: type[Object]) -> str:
        return f"metadata.name={self.node}" if kind is Node else ""

    def selector(self, kind: type[Object]) -> str:
        if kind in {Node, ServiceCIDR}:
            return ""
        return self.namespace_labels if kind is Namespace else self.labels


@dataclass(frozen=True, slots=True)
class NodeScope(Scope):
    """The scope of a node's dataplane, with kube-proxy's selectors.

    Services with virtual IPs and without another proxy, EndpointSlices except those of headless Services, the ranges of
    cluster IPs, and the Node.
    """

    kinds: tuple[type[Object], ...] = (Service, EndpointSlice, ServiceCIDR, Node)

    def fields(self, kind: type[Object]) -> str:
        return "spec.clusterIP!=None" if kind is Service else Scope.fields(self, kind)

    def selector(self, kind: type[Object]) -> str:
        if kind is Service:
            return "!service.kubernetes.io/service-proxy-name"
        return "!service.kubernetes.io/headless" if kind is EndpointSlice else ""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster to watch: its API, the objects, and the snapshot."""

    source: Source
    scope: Scope
    snapshot: SnapshotFile | None = None
