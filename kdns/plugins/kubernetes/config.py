"""kubernetes [ZONES…] { … }: names of Services, endpoints and pods from a Kubernetes API.

The options are CoreDNS's.
Differs: an argument too many is always an error; CoreDNS drops it behind `ttl`, `ignore` and `startup_timeout`.
Differs: `ignore` without an argument is an error; CoreDNS takes it for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from kdns.cluster import selectors
from kdns.cluster.objects import EndpointSlice, Namespace, Object, Pod, Service, ServiceImport
from kdns.cluster.source import ClientTLS, Scope, Source
from kdns.corefile.address import all_zones, is_reverse, zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.dnsserver.stanza import FALLTHROUGH, UNLIMITED, Option, configured, duration_s, integer, rate
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


def _endpoint(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    for token in line.args:
        if _scheme(token) not in {"http", "https"}:
            raise token.error("not the URL of an API server: http://HOST[:PORT] or https://HOST[:PORT]")
    return replace(config, endpoints=tuple(token.text for token in line.args))


def _scheme(token: Token) -> str:
    """The scheme of a URL that names a host and a possible port, or no port; "" for any other text."""
    try:
        url = urlsplit(token.text)
        possible = url.hostname and (url.port is None or url.port > 0)
    except ValueError:
        return ""
    return url.scheme if possible else ""


def _tls(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    cert, key, authority = (token.text for token in line.args)
    return replace(config, tls=ClientTLS(cert, key, authority))


def _kubeconfig(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    path, context = line.args[0].text, line.args[1].text if len(line.args) == 2 else ""
    return replace(config, kubeconfig_path=path, kubeconfig_context=context)


def _apiserver_qps(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    return replace(config, apiserver_qps=rate(line.args[0]))


def _apiserver_burst(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    return replace(config, apiserver_burst=integer(line.args[0], 0))


def _apiserver_max_inflight(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    return replace(config, apiserver_max_inflight=integer(line.args[0], 0))


def _namespaces(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if config.namespace_labels:
        raise line.error("`namespaces` and `namespace_labels` exclude each other: keep one")
    named = (*config.namespaces, *(token.text for token in line.args))
    return replace(config, namespaces=tuple(dict.fromkeys(named)))


def _namespace_labels(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if config.namespaces:
        raise line.error("`namespace_labels` and `namespaces` exclude each other: keep one")
    return replace(config, namespace_labels=_selector(line))


def _labels(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    return replace(config, labels=_selector(line))


def _selector(line: Line) -> str:
    text = " ".join(token.text for token in line.args)
    try:
        selectors.parse(text)
    except selectors.SelectorError as error:
        raise line.args[0].error(f"not a label selector: {error.reason}") from error
    return text


def _pods(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    try:
        return replace(config, pods=PodMode(line.args[0].text))
    except ValueError:
        raise line.args[0].error(f"not one of {', '.join(PodMode)}") from None


def _endpoint_pod_names(config: KubernetesConfig, _line: Line) -> KubernetesConfig:
    return replace(config, endpoint_pod_names=True)


def _ttl(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    return replace(config, ttl_s=integer(line.args[0], 0, MAX_TTL_S))


def _noendpoints(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if config.zonal:
        raise line.error("`noendpoints` and `zonal` exclude each other: names by zone are those of endpoints")
    return replace(config, serve_endpoints=False)


def _ignore(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if line.args[0].text != "empty_service":
        raise line.args[0].error("only `empty_service` can be ignored")
    return replace(config, ignore_empty_service=True)


def _startup_timeout(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    return replace(config, startup_timeout_s=duration_s(line.args[0]))


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


OPTIONS: dict[str, Option[KubernetesConfig]] = {
    "endpoint": Option("endpoint URL", 1, UNLIMITED, _endpoint),
    "tls": Option("tls CERT KEY CACERT", 3, 3, _tls),
    "kubeconfig": Option("kubeconfig FILE [CONTEXT]", 1, 2, _kubeconfig),
    "apiserver_qps": Option("apiserver_qps QPS", 1, 1, _apiserver_qps),
    "apiserver_burst": Option("apiserver_burst REQUESTS", 1, 1, _apiserver_burst),
    "apiserver_max_inflight": Option("apiserver_max_inflight REQUESTS", 1, 1, _apiserver_max_inflight),
    "namespaces": Option("namespaces NAMESPACE...", 1, UNLIMITED, _namespaces),
    "namespace_labels": Option("namespace_labels SELECTOR", 1, UNLIMITED, _namespace_labels),
    "labels": Option("labels SELECTOR", 1, UNLIMITED, _labels),
    "pods": Option("pods disabled|insecure|verified", 1, 1, _pods),
    "endpoint_pod_names": Option("endpoint_pod_names", 0, 0, _endpoint_pod_names),
    "ttl": Option("ttl SECONDS", 1, 1, _ttl),
    "noendpoints": Option("noendpoints", 0, 0, _noendpoints),
    "fallthrough": FALLTHROUGH,
    "ignore": Option("ignore empty_service", 1, 1, _ignore),
    "startup_timeout": Option("startup_timeout DURATION", 1, 1, _startup_timeout),
    "multicluster": Option("multicluster [ZONES...]", 0, UNLIMITED, _multicluster),
    "zonal": Option("zonal", 0, 0, _zonal),
}


def parse(stanza: Stanza, zones: tuple[str, ...]) -> KubernetesConfig:
    """What a `kubernetes` stanza says; its ZONES default to the server block's `zones`. Raises CorefileError."""
    own = all_zones(stanza.args) or zones
    if all(is_reverse(zone) for zone in own):
        raise stanza.error("a zone that is no reverse zone is needed too: PTR records point into it")
    return configured(KubernetesConfig(own), stanza, OPTIONS)
