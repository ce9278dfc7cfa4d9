"""kubernetes [ZONES…] { … }: names of Services, endpoints and pods from a Kubernetes API.

The options are CoreDNS's.
Differs: an argument too many is always an error; CoreDNS drops it behind `ttl`, `ignore` and `startup_timeout`.
Differs: `ignore` without an argument is an error; CoreDNS takes it for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from kdns.cluster import selectors
from kdns.cluster.objects import EndpointSlice, Namespace, Object, Pod, Service, ServiceImport
from kdns.cluster.source import ClientTLS, Scope, Source
from kdns.corefile.address import all_zones, is_reverse, zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.dnsserver.stanza import (
    FALLTHROUGH,
    UNLIMITED,
    Option,
    choice,
    configured,
    duration_s,
    flag,
    integer,
    rate,
    sets,
    sets_all,
    text,
)
from kdns.plugins.kubernetes.options import Options, PodMode

MAX_TTL_S = 3600
NO_TLS = ClientTLS()


@dataclass(frozen=True, slots=True)
class KubernetesConfig:
    """Where the objects come from, which are exposed, and how.

    Source: a kubeconfig if given, else the first of `endpoints` with `tls`, else the service account in the cluster.
    Rates are 0 where the Corefile sets no limit. `labels` and `namespace_labels` are selectors for the API, "" selects
    all; no `namespaces` means every namespace. `multicluster` are those of the zones that show ServiceImports.
    Unknown names in the zones of `fallthrough` go to the next directive.
    """

    zones: tuple[str, ...]
    endpoints: tuple[str, ...] = ()
    tls: ClientTLS = NO_TLS
    kubeconfig_path: str = ""
    kubeconfig_context: str = ""
    apiserver_qps: float = 0.0
    apiserver_burst: int = 0
    apiserver_max_inflight: int = 0
    namespaces: tuple[str, ...] = ()
    namespace_labels: str = ""
    labels: str = ""
    pods: PodMode = PodMode.DISABLED
    endpoint_pod_names: bool = False
    ttl_s: int = 5
    serve_endpoints: bool = True
    fallthrough: tuple[str, ...] = ()
    ignore_empty_service: bool = False
    startup_timeout_s: float = 5.0
    multicluster: tuple[str, ...] = ()
    zonal: bool = False

    @property
    def source(self) -> Source:
        """Where the API is."""
        return Source(
            kubeconfig=self.kubeconfig_path,
            context=self.kubeconfig_context,
            endpoint=self.endpoints[0] if self.endpoints else "",
            tls=self.tls,
            qps=self.apiserver_qps,
            burst=self.apiserver_burst,
            max_inflight=self.apiserver_max_inflight,
        )

    @property
    def scope(self) -> Scope:
        """What of it is followed."""
        kinds: list[type[Object]] = [Namespace, Service]
        if self.serve_endpoints:
            kinds.append(EndpointSlice)
        if self.pods is PodMode.VERIFIED:
            kinds.append(Pod)
        if self.multicluster:
            kinds.append(ServiceImport)
        return Scope(tuple(kinds), self.labels, self.namespace_labels)

    def options(self, own_addresses: tuple[bytes, ...] = ()) -> Options:
        """How it is shown by a server that answers on these addresses (packed)."""
        return Options(
            zones=self.zones,
            ttl_s=self.ttl_s,
            pods=self.pods,
            endpoint_pod_names=self.endpoint_pod_names,
            endpoints=self.serve_endpoints,
            ignore_empty_service=self.ignore_empty_service,
            namespaces=frozenset(self.namespaces) or None,
            own_addresses=own_addresses,
            multicluster=frozenset(self.multicluster),
            zonal=self.zonal,
        )


def _endpoint(token: Token) -> str:
    if _scheme(token) not in {"http", "https"}:
        raise token.error("not the URL of an API server: http://HOST[:PORT] or https://HOST[:PORT]")
    return token.text


def _scheme(token: Token) -> str:
    """The scheme of a URL that names a host and a possible port, or no port; "" for any other text."""
    try:
        url = urlsplit(token.text)
        possible = url.hostname and (url.port is None or url.port > 0)
    except ValueError:
        return ""
    return url.scheme if possible else ""


def _kubeconfig(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    path, context = line.args[0].text, line.args[1].text if len(line.args) == 2 else ""
    return replace(config, kubeconfig_path=path, kubeconfig_context=context)


def _namespaces(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if config.namespace_labels:
        raise line.error("`namespaces` and `namespace_labels` exclude each other: keep one")
    named = (*config.namespaces, *(token.text for token in line.args))
    return replace(config, namespaces=tuple(dict.fromkeys(named)))


def _namespace_labels(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if config.namespaces:
        raise line.error("`namespace_labels` and `namespaces` exclude each other: keep one")
    return replace(config, namespace_labels=_selector(line.args))


def _selector(args: Sequence[Token]) -> str:
    selector = " ".join(map(text, args))
    try:
        selectors.parse(selector)
    except selectors.SelectorError as error:
        raise args[0].error(f"not a label selector: {error.reason}") from error
    return selector


def _noendpoints(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if config.zonal:
        raise line.error("`noendpoints` and `zonal` exclude each other: names by zone are those of endpoints")
    return replace(config, serve_endpoints=False)


def _ignore(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if line.args[0].text != "empty_service":
        raise line.args[0].error("only `empty_service` can be ignored")
    return replace(config, ignore_empty_service=True)


def _multicluster(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    named = list(config.multicluster)
    for token in line.args:
        named += zones(token)
        if missing := [zone for zone in zones(token) if zone not in config.zones]:
            raise token.error(
                f"not one of the zones of `kubernetes`: {missing[0]} is none of {', '.join(config.zones)}"
            )
    return replace(config, multicluster=tuple(dict.fromkeys(named)))


def _zonal(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if not config.serve_endpoints:
        raise line.error("`zonal` and `noendpoints` exclude each other: names by zone are those of endpoints")
    return replace(config, zonal=True)


OPTIONS = {
    "endpoint": Option("endpoint URL", sets_all("endpoints", lambda args: tuple(map(_endpoint, args))), (1, UNLIMITED)),
    "tls": Option("tls CERT KEY CACERT", sets_all("tls", lambda args: ClientTLS(*map(text, args)))),
    "kubeconfig": Option("kubeconfig FILE [CONTEXT]", _kubeconfig),
    "apiserver_qps": Option("apiserver_qps QPS", sets("apiserver_qps", rate)),
    "apiserver_burst": Option("apiserver_burst REQUESTS", sets("apiserver_burst", integer, 0)),
    "apiserver_max_inflight": Option("apiserver_max_inflight REQUESTS", sets("apiserver_max_inflight", integer, 0)),
    "namespaces": Option("namespaces NAMESPACE...", _namespaces),
    "namespace_labels": Option("namespace_labels SELECTOR", _namespace_labels, (1, UNLIMITED)),
    "labels": Option("labels SELECTOR", sets_all("labels", _selector), (1, UNLIMITED)),
    "pods": Option("pods disabled|insecure|verified", sets("pods", lambda word: PodMode(choice(word, tuple(PodMode))))),
    "endpoint_pod_names": Option("endpoint_pod_names", flag("endpoint_pod_names")),
    "ttl": Option("ttl SECONDS", sets("ttl_s", integer, 0, MAX_TTL_S)),
    "noendpoints": Option("noendpoints", _noendpoints),
    "fallthrough": FALLTHROUGH,
    "ignore": Option("ignore empty_service", _ignore),
    "startup_timeout": Option("startup_timeout DURATION", sets("startup_timeout_s", duration_s)),
    "multicluster": Option("multicluster [ZONES...]", _multicluster),
    "zonal": Option("zonal", _zonal),
}


def parse(stanza: Stanza, zones: tuple[str, ...]) -> KubernetesConfig:
    """What a `kubernetes` stanza says; its ZONES default to the server block's `zones`. Raises CorefileError."""
    own = all_zones(stanza.args) or zones
    if all(is_reverse(zone) for zone in own):
        raise stanza.error("a zone that is no reverse zone is needed too: PTR records point into it")
    return configured(KubernetesConfig(own), stanza, OPTIONS)
