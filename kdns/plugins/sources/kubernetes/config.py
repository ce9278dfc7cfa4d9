"""kubernetes [ZONES…] { … }: configuration and grammar.

The options are CoreDNS's.
Differs: an argument too many is always an error; CoreDNS ignores it after `ttl`, `ignore` and `startup_timeout`.
Differs: `ignore` without an argument is an error; CoreDNS ignores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from kdns.cluster import selectors
from kdns.cluster.objects import EndpointSlice, Namespace, Object, Pod, Service, ServiceImport
from kdns.cluster.source import ClientTLS, Scope, SnapshotFile, Source
from kdns.corefile.address import all_zones, filled, is_reverse, zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.plugins.sources.kubernetes.options import Options, PodMode
from kdns.serverblocks.stanza import (
    FALLTHROUGH,
    UNLIMITED,
    Option,
    choice,
    configured,
    duration_s,
    flag,
    integer,
    path_of,
    rate,
    sets,
    sets_all,
    text,
)

MAX_TTL_S = 3600
MAX_AGE_S = 86400.0
"""The default for the oldest snapshot that is served."""
DEFAULT_SOURCE = Source()


@dataclass(frozen=True, slots=True)
class KubernetesConfig:
    """`labels` and `namespace_labels` are label selectors, "" selects all.

    Missing names in the zones of `fallthrough` go to the next directive. `snapshot` is served while no API answers;
    then the directive is ready if `is_ready_when_stale`.
    """

    options: Options
    source: Source = DEFAULT_SOURCE
    labels: str = ""
    namespace_labels: str = ""
    fallthrough: tuple[str, ...] = ()
    startup_timeout_s: float = 5.0
    snapshot: SnapshotFile | None = None
    is_ready_when_stale: bool = True

    @property
    def scope(self) -> Scope:
        kinds: list[type[Object]] = [Namespace, Service]
        if self.options.endpoints:
            kinds.append(EndpointSlice)
        if self.options.pods is PodMode.VERIFIED:
            kinds.append(Pod)
        if self.options.multicluster:
            kinds.append(ServiceImport)
        return Scope(tuple(kinds), self.labels, self.namespace_labels)


def _endpoint(args: Sequence[Token]) -> str:
    """Only the first URL is used."""
    for token in args:
        if _scheme(token) not in {"http", "https"}:
            raise token.expected("the URL of an API server: http://HOST[:PORT] or https://HOST[:PORT]")
    return args[0].text


def _scheme(token: Token) -> str:
    """The scheme of a URL with a host and a valid port, or without port; "" for any other text."""
    try:
        url = urlsplit(token.text)
        possible = url.hostname and (url.port is None or url.port > 0)
    except ValueError:
        return ""
    return url.scheme if possible else ""


def _kubeconfig(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    context = line.args[1].text if len(line.args) == 2 else ""
    return replace(config, source=replace(config.source, kubeconfig=path_of(line.args[0]), context=context))


def _namespaces(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if config.namespace_labels:
        raise line.error("`namespaces` and `namespace_labels` cannot be combined; remove one")
    named = {token.text for token in filled(line.args, "a namespace")}.union(config.options.namespaces or ())
    return replace(config, options=replace(config.options, namespaces=frozenset(named)))


def _namespace_labels(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if config.options.namespaces:
        raise line.error("`namespace_labels` and `namespaces` cannot be combined; remove one")
    return replace(config, namespace_labels=_selector(line.args))


def _selector(args: Sequence[Token]) -> str:
    selector = " ".join(map(text, args))
    try:
        selectors.parse(selector)
    except selectors.SelectorError as error:
        raise args[0].error(f"invalid label selector: {error.reason}") from error
    return selector


def _noendpoints(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if config.options.zonal:
        raise line.error("`noendpoints` and `zonal` cannot be combined: zonal names are names of endpoints")
    return replace(config, options=replace(config.options, endpoints=False))


def _ignore(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if line.args[0].text != "empty_service":
        raise line.args[0].expected("`empty_service`")
    return replace(config, options=replace(config.options, ignore_empty_service=True))


def _multicluster(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    options = config.options
    for token in filled(line.args, "a zone"):
        if missing := [zone for zone in zones(token) if zone not in options.zones]:
            raise token.error(f"expected a zone of `kubernetes` ({', '.join(options.zones)}), got {missing[0]}")
        options = replace(options, multicluster=options.multicluster.union(zones(token)))
    return replace(config, options=options)


def _zonal(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    if not config.options.endpoints:
        raise line.error("`zonal` and `noendpoints` cannot be combined: zonal names are names of endpoints")
    return replace(config, options=replace(config.options, zonal=True))


def _snapshot(config: KubernetesConfig, line: Line) -> KubernetesConfig:
    file, *words = line.args
    is_unready = bool(words) and words[-1].text == "unready"
    ages = words[: len(words) - is_unready]
    if len(ages) > 1:
        raise ages[1].expected("`unready`")
    max_age_s = duration_s(ages[0]) if ages else MAX_AGE_S
    if not max_age_s:
        raise ages[0].expected("a duration above 0")
    return replace(config, snapshot=SnapshotFile(path_of(file), max_age_s), is_ready_when_stale=not is_unready)


OPTIONS = {
    "endpoint": Option("endpoint URL", sets_all("source.endpoint", _endpoint), (1, UNLIMITED)),
    "tls": Option("tls CERT KEY CACERT", sets_all("source.tls", lambda args: ClientTLS(*map(path_of, args)))),
    "kubeconfig": Option("kubeconfig FILE [CONTEXT]", _kubeconfig),
    "apiserver_qps": Option("apiserver_qps QPS", sets("source.qps", rate)),
    "apiserver_burst": Option("apiserver_burst REQUESTS", sets("source.burst", integer, 0)),
    "apiserver_max_inflight": Option("apiserver_max_inflight REQUESTS", sets("source.max_inflight", integer, 0)),
    "namespaces": Option("namespaces NAMESPACE...", _namespaces),
    "namespace_labels": Option("namespace_labels SELECTOR", _namespace_labels, (1, UNLIMITED)),
    "labels": Option("labels SELECTOR", sets_all("labels", _selector), (1, UNLIMITED)),
    "pods": Option(
        "pods disabled|insecure|verified", sets("options.pods", lambda word: PodMode(choice(word, tuple(PodMode))))
    ),
    "endpoint_pod_names": Option("endpoint_pod_names", flag("options.endpoint_pod_names")),
    "ttl": Option("ttl SECONDS", sets("options.ttl_s", integer, 0, MAX_TTL_S)),
    "noendpoints": Option("noendpoints", _noendpoints),
    "fallthrough": FALLTHROUGH,
    "ignore": Option("ignore empty_service", _ignore),
    "startup_timeout": Option("startup_timeout DURATION", sets("startup_timeout_s", duration_s)),
    "snapshot": Option("snapshot FILE [MAX_AGE] [unready]", _snapshot),
    "explain": Option("explain", flag("options.explain")),
    "multicluster": Option("multicluster [ZONES...]", _multicluster),
    "zonal": Option("zonal", _zonal),
}


def parse(stanza: Stanza, zones: tuple[str, ...]) -> KubernetesConfig:
    """ZONES default to the server block's `zones`; raises CorefileError."""
    own = all_zones(stanza.args) or zones
    if all(is_reverse(zone) for zone in own):
        raise stanza.error("expected also a forward zone: PTR records point into it")
    return configured(KubernetesConfig(Options(own)), stanza, OPTIONS)
