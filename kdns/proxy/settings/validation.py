"""Validation of settings, in kube-proxy's words (pkg/proxy/apis/config/validation, 1.36).

nodePortAddresses is that of kube-proxy 1.37: `primary`, `localhost` and `all` beside CIDRs.

Differs: fields are named as in a file (iptables.masqueradeBit), where kube-proxy 1.36 names the types of its source
(KubeProxyConfiguration.KubeProxyIPTablesConfiguration.MasqueradeBit). An empty --metrics-bind-address turns metrics
off, as its help says. What kube-proxy takes and kdns cannot do is refused: a setting without effect would deceive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from kdns.net import family_of, parse_network, parse_port, parse_unmapped_address, split_host_port
from kdns.proxy.mode import Mode
from kdns.proxy.modes import MODES, sections
from kdns.proxy.settings.plan_config import ADDRESS_KEYWORDS, node_port_networks, protected_port
from kdns.proxy.settings.section import (
    CIDR,
    POSITIVE,
    Periods,
    Problem,
    Seconds,
    api_name,
    invalid,
    is_cidr,
    negative,
)
from kdns.proxy.settings.settings import DEFAULT_MODE, GATES, LOCAL_MODES, ClientConnection, Settings

_PREVIOUS_MINOR: Final = "1.35"
_SCORES: Final = range(-1000, 1001)
_CIDR_BLOCK: Final = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"
_CIDR_PAIR: Final = (
    "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]"
)
_PROTECTED_PORT: Final = "must be [IP or CIDR:]PORT[/PROTOCOL] (e.g. 2222, 8.8.8.8:53 or [fde4:8dba:82e1::/48]:22/tcp)"
_CONTENT_TYPES: Final = frozenset({ClientConnection().content_type, "application/json"})
_INTERFACE_NAME: Final = re.compile(r"[^\s/\"*\\]+")
_INTERFACES: Final = {"BridgeInterface": ("bridge_interface", 15), "InterfaceNamePrefix": ("interface_name_prefix", 14)}
"""Fields of detectLocal by detectLocalMode, with their longest text; a prefix gets an asterisk in nft."""
_NO_INTERFACE: Final = "must be at most {} characters, without blanks, slashes, quotes and asterisks"


def problems(settings: Settings) -> tuple[Problem, ...]:
    """Returns every mistake that kube-proxy would not start with, and every setting that kdns cannot do."""
    parts = (_modes, _numbers, _addresses, _local, _others)
    return tuple(problem for part in parts for problem in part(settings))


def problems_beside(settings: Settings, mistyped: Iterable[Problem]) -> Iterator[Problem]:
    """Yields the problems of settings some of whose fields have their defaults since they could not be read."""
    fields = {problem.field for problem in mistyped}
    for problem in problems(settings):
        if not any(_is_about(problem, field) for field in fields):
            yield problem


def _is_about(problem: Problem, field: str) -> bool:
    """Returns whether the field, or one within or around it, is the one with the problem or is compared with it."""
    is_around = problem.field.startswith((f"{field}.", f"{field}[")) or field.startswith(
        (f"{problem.field}.", f"{problem.field}[")
    )
    return problem.field == field or is_around or problem.reason.endswith(f" {field}")


def _modes(settings: Settings) -> Iterator[Problem]:
    if settings.mode not in MODES:
        blank = f"blank means the best-available proxy [currently {DEFAULT_MODE}]"
        yield invalid("mode", settings.mode, f"must be {', '.join(sorted(MODES))} or blank ({blank})")
    mode = MODES.get(settings.mode, MODES[DEFAULT_MODE])
    yield from _periods(mode.periods.PATH, settings.section(mode.periods))
    for section in sections():
        yield from settings.section(section).problems(is_used=section in mode.sections)


def _periods(path: str, own: Periods) -> Iterator[Problem]:
    least = f"{path}.minSyncPeriod"
    if own.sync_period_s <= 0:
        yield invalid(f"{path}.syncPeriod", Seconds(own.sync_period_s), POSITIVE)
    yield from negative(path, own, "min_sync_period_s")
    if own.min_sync_period_s > own.sync_period_s:
        reason = f"must be greater than or equal to {least}"
        yield invalid(f"{path}.syncPeriod", Seconds(own.min_sync_period_s), reason)


def _numbers(settings: Settings) -> Iterator[Problem]:
    if settings.oom_score_adj not in _SCORES:
        yield invalid("oomScoreAdj", settings.oom_score_adj, "must be within the range [-1000, 1000]")
    timeouts = ("tcp_established_timeout_s", "tcp_close_wait_timeout_s", "udp_timeout_s", "udp_stream_timeout_s")
    yield from negative("conntrack", settings.conntrack, "max_per_core", "min", *timeouts)
    yield from negative("clientConnection", settings.client_connection, "burst")
    if settings.config_sync_period_s <= 0:
        yield invalid("configSyncPeriod", Seconds(settings.config_sync_period_s), POSITIVE)


def _addresses(settings: Settings) -> Iterator[Problem]:
    if not parse_unmapped_address(settings.bind_address):
        reason = "not a valid textual representation of an IP address"
        yield invalid("bindAddress", settings.bind_address, reason)
    for name in ("healthz_bind_address", "metrics_bind_address"):
        value: str = getattr(settings, name)
        if value:
            yield from _host_port(api_name(name), value)
    for index, value in enumerate(settings.node_port_addresses):
        field = f"nodePortAddresses[{index}]"
        if value not in ADDRESS_KEYWORDS and not is_cidr(value):
            yield invalid(field, value, f"{CIDR}, or one of {', '.join(ADDRESS_KEYWORDS)}")
    for index, value in enumerate(settings.protected_ports):
        if not protected_port(value):
            yield invalid(f"protectedPorts[{index}]", value, _PROTECTED_PORT)


def _host_port(field: str, text: str) -> Iterator[Problem]:
    parts = split_host_port(text)
    if not parts:
        yield invalid(field, text, "must be IP:port")
        return
    host, port = parts
    if not parse_unmapped_address(host):
        yield invalid(field, host, "must be a valid IP")
    if not parse_port(port):
        yield invalid(field, port, "must be a valid port")


def _local(settings: Settings) -> Iterator[Problem]:
    mode = settings.detect_local_mode
    if mode not in LOCAL_MODES:
        names = ", ".join(f'"{name}"' for name in (*LOCAL_MODES, ""))
        yield Problem("detectLocalMode", f'Unsupported value: "{mode}": supported values: {names}')
    elif mode in _INTERFACES:
        name, most = _INTERFACES[mode]
        field, text = f"detectLocal.{api_name(name)}", getattr(settings.detect_local, name)
        if not text:
            yield invalid(field, "", "must not be empty")
        elif len(text) > most or not _INTERFACE_NAME.fullmatch(text):
            yield invalid(field, text, _NO_INTERFACE.format(most))
    elif mode == "ClusterCIDR":
        yield from _cluster_cidrs(settings.cluster_cidrs)


def _cluster_cidrs(cidrs: tuple[str, ...]) -> Iterator[Problem]:
    if len(cidrs) > 2:
        yield invalid("clusterCIDR", cidrs, _CIDR_PAIR)
        return
    wrong = [cidr for cidr in cidrs if not is_cidr(cidr)]
    for cidr in wrong:
        yield invalid("clusterCIDR", cidr, _CIDR_BLOCK)
    versions = [network.version for cidr in cidrs if (network := parse_network(cidr))]
    if not wrong and len(set(versions)) < len(versions):
        yield invalid("clusterCIDR", cidrs, _CIDR_PAIR)


def _others(settings: Settings) -> Iterator[Problem]:
    if settings.show_hidden_metrics_for_version not in {"", _PREVIOUS_MINOR}:
        only = f"must be omitted or have the value '{_PREVIOUS_MINOR}'. Only the previous minor version is allowed"
        field = "showHiddenMetricsForVersion"
        yield invalid(field, settings.show_hidden_metrics_for_version, f"--show-hidden-metrics-for-version {only}")
    if settings.logging.format not in {"text", "json"}:
        yield invalid("logging.format", settings.logging.format, "Unsupported log format")
    for gate in sorted(set(settings.feature_gates) - set(GATES)):
        yield Problem(f"featureGates.{gate}", f"Forbidden: kdns has no such feature gate; it has {', '.join(GATES)}")
    client = settings.client_connection
    for field, value in (("contentType", client.content_type), ("acceptContentTypes", client.accept_content_types)):
        if value and not _CONTENT_TYPES.intersection(part.strip() for part in value.split(",")):
            yield invalid(f"clientConnection.{field}", value, "kdns reads and writes application/json")


def remarks(settings: Settings) -> Iterator[Problem]:
    row = MODES[settings.mode]
    mode = row.semantics
    if row.deprecated:
        yield Problem("mode", row.deprecated)
    is_open = mode.restricts_node_ports and not mode.primary_node_ports and not mode.relays
    if is_open and not settings.node_port_addresses:
        why = "is unset; NodePort connections will be accepted on all local IPs. Consider using `primary`"
        yield Problem("nodePortAddresses", why)
    if settings.node_port_addresses and not mode.restricts_node_ports:
        yield Problem("nodePortAddresses", f"has no effect in mode {mode.name}: node ports are at all addresses")
    yield from _unserved_loopback(settings, row)
    if settings.enable_profiling:
        yield Problem("enableProfiling", "has no effect: `py-spy dump` and `py-spy top` show the stacks of the process")
    knows_pods = settings.detect_local_mode != "ClusterCIDR" or settings.cluster_cidr
    if not (knows_pods or row.masquerades_all(row, settings) or mode.treats_clients_alike):
        why = "is unset: Pods of this node cannot be told from others, so no packet to a cluster IP is masqueraded"
        yield Problem("clusterCIDR", why)


def _unserved_loopback(settings: Settings, row: Mode) -> Iterator[Problem]:
    """Yields the items of nodePortAddresses that name loopback addresses where the mode has no node ports."""
    mode, switch = row.semantics, row.loopback_switch
    for index, text in enumerate(settings.node_port_addresses if mode.restricts_node_ports else ()):
        networks = node_port_networks(text)
        families = {family_of(network) for network in networks if not isinstance(network, str) and network.is_loopback}
        if not families:
            continue
        field, effect = f"nodePortAddresses[{index}]", f"{text} has no effect in mode {mode.name}"
        if not families & mode.loopback_node_ports:
            others = [other.name for other in MODES.values() if families & other.semantics.loopback_node_ports]
            where = f"node ports are at loopback addresses in mode {' and '.join(others)} only"
            yield Problem(field, f"{effect}: {where}. Consider using the node's addresses")
        elif switch and not switch.is_on(settings):
            yield Problem(field, f"{effect} while {switch.path} is false")
