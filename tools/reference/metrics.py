"""The metrics of `kdns serve`, `kdns proxy` and `kdns up`, from the registries that these commands serve."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_network
from typing import Any, Final, NamedTuple, cast

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.registry import Collector
from structlog.testing import capture_logs

from kdns.apps.serve import setup_errors
from kdns.cluster.io.informer import FollowStats
from kdns.cluster.state import State
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.server.io.metrics import allocation_metrics
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.storage.store import Store
from kdns.corefile.parse import parse
from kdns.dnsserver.io.request_metrics import Requests, listener_metrics
from kdns.dnsserver.io.server import DnsServer
from kdns.dnsserver.io.supervisor import worker_metrics
from kdns.plugins.directives import BY_NAME, configure
from kdns.proxy.iptables.io.counters import IptablesCounters
from kdns.proxy.ipvs.draining import Draining
from kdns.proxy.ipvs.io.counters import IpvsCounters
from kdns.proxy.kernelspace.io.proxier import ObjectCounters
from kdns.proxy.modes import MODES
from kdns.proxy.nftables.io.counters import nftables_counters
from kdns.proxy.node.io.health import ProxyHealth
from kdns.proxy.node.io.metrics import MetricSources, rows
from kdns.proxy.sync.io.conntrack import ConntrackReconciler
from kdns.proxy.sync.io.proxier import Counters
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.proxy.sync.schedule import SyncTiming
from kdns.proxy.userspace.io.counters import RelayCounters
from kdns.runtime.http.sites import sli_metrics
from kdns.runtime.http.zpages import HealthChecks
from kdns.runtime.metrics import MetricFamilies

_COREFILE: Final = """
.:0 {
    bind 127.0.0.1
    acl {
        allow
    }
    autopath @kubernetes
    cache
    dns64
    dnssec
    dnstap tcp://127.0.0.1:1
    health 127.0.0.1:0
    hosts
    local
    loop
    rrl . {
        responses-per-second 1
    }
    template IN A example {
        answer "{{ .Name }} 60 IN A 192.0.2.1"
    }
    forward . 127.0.0.1:1
    kubernetes cluster.local {
        endpoint http://127.0.0.1:1
        startup_timeout 0s
        pods verified
    }
}
"""
"""Every directive that has metrics."""

_MODE_COUNTERS: Final[Mapping[str, Counters]] = {
    "nftables": nftables_counters(),
    "iptables": IptablesCounters({}),
    "ipvs": IpvsCounters(Draining()),
    "kernelspace": ObjectCounters({}),
    "userspace": RelayCounters({}, None),
}

LABELS: Final = {
    "cidr": "the range of cluster IPs",
    "class": "the class of the query",
    "code": "the status of the HTTP response",
    "configured": "the mode in the configuration",
    "endpoint": "the address of the collector",
    "errortype": "what could not be repaired: `interface_add` or `nftables`",
    "family": "`1` for a query over IPv4, `2` for one over IPv6",
    "generation": "the generation of Python's garbage collector",
    "goversion": "the version of Python",
    "hash": "the name of the hash function",
    "host": "the address of the API server",
    "hostsfile": "the path of the file",
    "implementation": "the implementation of Python",
    "ip_family": "`IPv4` or `IPv6`",
    "kind": "the kind of the objects, such as `Service`",
    "major": "the major version of Python",
    "method": "the method of the HTTP request",
    "minor": "the minor version of Python",
    "mode": "the mode at work",
    "name": "in `coredns_plugin_enabled` the directive; in `kubernetes_healthcheck…` the health check",
    "namespace": "the namespace of the Service",
    "patchlevel": "the patch level of Python",
    "plugin": "the directive that answered",
    "port": "the name or number of the Service port",
    "proto": "`udp` or `tcp`",
    "protocol": "`TCP`, `UDP` or `SCTP`",
    "proxy_name": "the directive whose upstream it is: `forward`",
    "rcode": "the rcode of the response, such as `NOERROR`",
    "reason": "why the message was ignored",
    "revision": "empty; CoreDNS has its commit there",
    "scope": "`static` for a requested address or port, `dynamic` for a chosen one",
    "section": "the section of the response",
    "server": "the address of the server, such as `dns://:53`; in `kdns_watch_…`, `kdns_objects` and `kdns_snapshot_…` "
    "the API server",
    "service": "the name of the Service",
    "service_kind": "the kind of the Service, such as `headless_with_selector`",
    "status": "the HTTP status, the error code of QUIC, or the result of a health check",
    "table": "the table of iptables",
    "template": "the text of the template",
    "to": "the address of the upstream",
    "traffic_policy": "`internal` or `external`",
    "type": "in metrics of DNS the type of the query; in those of caches what is cached, such as `denial`; in "
    "`kubernetes_healthcheck…` the page",
    "value": "the hash",
    "verb": "the verb of the request",
    "version": "the version of kdns; in `python_info` of Python",
    "view": "the name of the server block's `view`",
    "zone": "the zone of the server block",
    "zones": "the zones of the cache",
}
"""Label → its meaning."""


_PATHS: Final = "them on `/metrics`, and `kubernetes_healthcheck…` on `/metrics/slis`"


class Row(NamedTuple):
    """A metric as the page has it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str
    note: str = ""


def page() -> str:
    """Returns the page of all metrics."""
    serve, proxy, up = asyncio.run(_serve()), _proxy(), _up()
    labels = sorted({label for row in (*serve, *proxy, *up) for label in row.labels})
    return "\n".join(
        (
            "# All metrics",
            "",
            "[Metrics and dashboards](../tasks/metrics.md) says which metric answers which question.",
            "A histogram `NAME` has the samples `NAME_bucket` with the label `le`, `NAME_sum` and `NAME_count`.",
            "",
            "## Of kdns serve",
            "",
            "The directive [prometheus](../directives/prometheus.md) serves them on `/metrics`.",
            "A metric with a directive has samples if a server block has that directive.",
            *_list(serve, "directive"),
            "",
            "## Of kdns proxy",
            "",
            f"[`metricsBindAddress`](../proxy.md#metrics) serves {_PATHS}.",
            *_list(proxy, "modes"),
            "",
            "## Of the API of kdns up",
            "",
            f"The API serves {_PATHS}.",
            "The DNS server of `kdns up` has the metrics of `kdns serve` if its Corefile has `prometheus`.",
            *_list(up),
            "",
            "## Labels",
            "",
            "| label | meaning |",
            "|---|---|",
            *(f"| `{label}` | {LABELS[label]} |" for label in labels),
            "",
        )
    )


def _list(found: Iterable[Row], note: str = "") -> Iterator[str]:
    yield ""
    for row in sorted(found):
        labels = ", ".join(f"`{label}`" for label in row.labels)
        yield f"- `{row.name}`: {row.text}."
        by, of = f" by {labels}" if labels else "", f"; {note} {row.note}" if row.note else ""
        yield f"  {row.kind.capitalize()}{by}{of}."


def _collected(*collectors: Collector) -> Iterator[Row]:
    for collector in collectors:
        for family in collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            samples = {label for sample in family.samples for label in sample.labels} - {"le"}
            labels = getattr(family, "_labelnames", ()) or sorted(samples)  # prometheus_client has no public name of it
            yield Row(name, family.type, tuple(labels), family.documentation.removesuffix("."))


async def _serve() -> tuple[Row, ...]:
    server = DnsServer(configure(parse(_COREFILE)))
    setup_errors(server)
    with capture_logs():  # the upstream and the API server of _COREFILE do not exist
        await server.start()
        found = [*_collected(server.metrics(runtime=True))]
        await server.stop()
    others = MetricFamilies(
        lambda: listener_metrics({"": [Requests(https_responses={0: 0}, quic_responses={0: 0})]}),
        lambda: worker_metrics(0, 0),
    )
    by_name = {row.name: row for row in (*_collected(others), *found)}
    return tuple(row._replace(note=_directive(row.name)) for row in by_name.values())


def _directive(name: str) -> str:
    words = name.removeprefix("coredns_proxy_").removeprefix("coredns_").removeprefix("kdns_").split("_")
    directive = "forward" if name.startswith("coredns_proxy_") else words[0]
    return f"[{directive}](../directives/{directive}.md)" if directive in BY_NAME else ""


def _proxy() -> tuple[Row, ...]:
    modes: dict[Row, list[str]] = {}
    for name, counters in _MODE_COUNTERS.items():
        runner = SyncRunner(State(), cast("Any", None), lambda: None, SyncTiming())
        sources = MetricSources(
            MODES[name],
            name,
            counters,
            runner,
            ProxyHealth(runner, lambda: None),
            FollowStats(),
            ConntrackReconciler(None),
        )
        process = ProcessCollector(registry=CollectorRegistry())
        for row in _collected(rows(sources), process, sli_metrics(HealthChecks())):
            modes.setdefault(row, []).append(name)
    every = len(_MODE_COUNTERS)
    return tuple(row._replace(note="" if len(names) == every else ", ".join(names)) for row, names in modes.items())


def _up() -> tuple[Row, ...]:
    config = ClusterConfig((ip_network("10.96.0.0/16"),))
    registry = Registry(Store(), config, lambda _: 0, lambda: 0.0, lambda: "", lambda: "")
    return tuple(_collected(allocation_metrics(registry.services), sli_metrics(HealthChecks())))
