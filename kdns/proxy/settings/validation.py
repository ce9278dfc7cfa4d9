"""Validation of settings, in kube-proxy's words (pkg/proxy/apis/config/validation, 1.36).

nodePortAddresses is that of kube-proxy 1.37: `primary`, `localhost` and `all` beside CIDRs.

Differs: fields are named as in a file (iptables.masqueradeBit), where kube-proxy 1.36 names the types of its source
(KubeProxyConfiguration.KubeProxyIPTablesConfiguration.MasqueradeBit). An empty --metrics-bind-address turns metrics
off, as its help says. What kube-proxy takes and kdns cannot do is refused: a setting without effect would deceive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from kdns.durations import format_duration
from kdns.net import family_of, parse_network, parse_port, parse_unmapped_address, split_host_port
from kdns.proxy.modes import MODES, NAMES
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.settings.document import Problem
from kdns.proxy.settings.plan_config import ADDRESS_KEYWORDS, node_port_networks, protected_port
from kdns.proxy.settings.settings import (
    DEFAULT_MODE,
    GATES,
    IPVS,
    LOCAL_MODES,
    ClientConnection,
    Logging,
    Settings,
    api_name,
)

_PREVIOUS_MINOR: Final = "1.35"
_BITS: Final = range(32)
_SCORES: Final = range(-1000, 1001)
_CIDR: Final = "must be a valid CIDR"
_CIDR_BLOCK: Final = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"
_CIDR_PAIR: Final = (
    "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]"
)
_PROTECTED_PORT: Final = "must be [IP or CIDR:]PORT[/PROTOCOL] (e.g. 2222, 8.8.8.8:53 or [fde4:8dba:82e1::/48]:22/tcp)"
_CONTENT_TYPES: Final = frozenset({ClientConnection().content_type, "application/json"})
_INTERFACE_NAME: Final = re.compile(r"[^\s/\"*\\]{1,15}")
_PREFIX: Final = re.compile(r"[^\s/\"*\\]{1,14}")
_NO_INTERFACE: Final = "must be at most {} characters, without blanks, slashes, quotes and asterisks"


def problems(settings: Settings) -> tuple[Problem, ...]:
    """Returns every mistake that kube-proxy would not start with, and every setting that kdns cannot do."""
    parts = (_modes, _winkernel, _numbers, _addresses, _local, _rest, _unsupported)
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


def remarks(settings: Settings) -> tuple[Problem, ...]:
    """Yields valid settings that may have an unexpected effect."""
    return tuple(_remarks(settings))


@dataclass(frozen=True, slots=True)
class _Duration:
    """A duration as invalid value: it is shown without quotes."""

    seconds: float

    def __str__(self) -> str:
        return format_duration(self.seconds)


def _invalid(field: str, value: object, reason: str) -> Problem:
    match value:
        case str():
            shown = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case tuple():
            shown = "[" + ",".join(f'"{item}"' for item in value) + "]"
        case _:
            shown = str(value)
    return Problem(field, f"Invalid value: {shown}: {reason}")


def _modes(settings: Settings) -> Iterator[Problem]:
    if settings.mode not in MODES:
        blank = f"blank means the best-available proxy [currently {DEFAULT_MODE}]"
        yield _invalid("mode", settings.mode, f"must be {', '.join(sorted(NAMES))} or blank ({blank})")
    name, own = settings.part
    least = f"{name}.minSyncPeriod"
    if own.sync_period_s <= 0:
        yield _invalid(f"{name}.syncPeriod", _Duration(own.sync_period_s), "must be greater than 0")
    if own.min_sync_period_s < 0:
        yield _negative(least, _Duration(own.min_sync_period_s))
    if own.min_sync_period_s > own.sync_period_s:
        reason = f"must be greater than or equal to {least}"
        yield _invalid(f"{name}.syncPeriod", _Duration(own.min_sync_period_s), reason)
    if isinstance(own, IPVS):
        yield from _not_negative("ipvs", own, "tcp_timeout_s", "tcp_fin_timeout_s", "udp_timeout_s")
        for index, cidr in enumerate(own.exclude_cidrs):
            if not _is_cidr(cidr):
                yield _invalid(f"ipvs.excludeCIDRs[{index}]", cidr, _CIDR)


def _winkernel(settings: Settings) -> Iterator[Problem]:
    winkernel = settings.winkernel
    if winkernel.source_vip and not isinstance(parse_unmapped_address(winkernel.source_vip), IPv4Address):
        yield _invalid("winkernel.sourceVip", winkernel.source_vip, "must be an IPv4 address")
    if winkernel.root_hns_endpoint_name and not winkernel.forward_health_check_vip:
        reason = "has no effect without winkernel.forwardHealthCheckVip"
        yield _invalid("winkernel.rootHnsEndpointName", winkernel.root_hns_endpoint_name, reason)


def _numbers(settings: Settings) -> Iterator[Problem]:
    if settings.iptables.masquerade_bit not in _BITS:
        yield _invalid("iptables.masqueradeBit", settings.iptables.masquerade_bit, "must be within the range [0, 31]")
    if settings.part[0] == "nftables" and settings.nftables.masquerade_bit not in _BITS:
        yield _invalid("nftables.masqueradeBit", settings.nftables.masquerade_bit, "must be within the range [0, 31]")
    if settings.oom_score_adj not in _SCORES:
        yield _invalid("oomScoreAdj", settings.oom_score_adj, "must be within the range [-1000, 1000]")
    timeouts = ("tcp_established_timeout_s", "tcp_close_wait_timeout_s", "udp_timeout_s", "udp_stream_timeout_s")
    yield from _not_negative("conntrack", settings.conntrack, "max_per_core", "min", *timeouts)
    yield from _not_negative("clientConnection", settings.client_connection, "burst")
    for name in ("config_sync_period_s", "udp_idle_timeout_s"):
        if getattr(settings, name) <= 0:
            yield _invalid(api_name(name), _Duration(getattr(settings, name)), "must be greater than 0")


def _not_negative(path: str, part: object, *names: str) -> Iterator[Problem]:
    for name in names:
        value = getattr(part, name)
        if value < 0:
            yield _negative(f"{path}.{api_name(name)}", _Duration(value) if name.endswith("_s") else value)


def _negative(field: str, value: object) -> Problem:
    return _invalid(field, value, "must be greater than or equal to 0")


def _addresses(settings: Settings) -> Iterator[Problem]:
    if not parse_unmapped_address(settings.bind_address):
        reason = "not a valid textual representation of an IP address"
        yield _invalid("bindAddress", settings.bind_address, reason)
    for name in ("healthz_bind_address", "metrics_bind_address"):
        value: str = getattr(settings, name)
        if value:
            yield from _host_port(api_name(name), value)
    for index, value in enumerate(settings.node_port_addresses):
        field = f"nodePortAddresses[{index}]"
        if value not in ADDRESS_KEYWORDS and not _is_cidr(value):
            yield _invalid(field, value, f"{_CIDR}, or one of {', '.join(ADDRESS_KEYWORDS)}")
    for index, value in enumerate(settings.protected_ports):
        if not protected_port(value):
            yield _invalid(f"protectedPorts[{index}]", value, _PROTECTED_PORT)


def _host_port(field: str, text: str) -> Iterator[Problem]:
    parts = split_host_port(text)
    if not parts:
        yield _invalid(field, text, "must be IP:port")
        return
    host, port = parts
    if not parse_unmapped_address(host):
        yield _invalid(field, host, "must be a valid IP")
    if not parse_port(port):
        yield _invalid(field, port, "must be a valid port")


def _local(settings: Settings) -> Iterator[Problem]:
    mode = settings.detect_local_mode
    if mode not in LOCAL_MODES:
        names = ", ".join(f'"{name}"' for name in (*LOCAL_MODES, ""))
        yield Problem("detectLocalMode", f'Unsupported value: "{mode}": supported values: {names}')
    elif mode == "BridgeInterface" and not settings.detect_local.bridge_interface:
        yield _invalid("detectLocal.bridgeInterface", "", "must not be empty")
    elif mode == "InterfaceNamePrefix" and not settings.detect_local.interface_name_prefix:
        yield _invalid("detectLocal.interfaceNamePrefix", "", "must not be empty")
    elif mode == "BridgeInterface" and not _INTERFACE_NAME.fullmatch(settings.detect_local.bridge_interface):
        yield _invalid("detectLocal.bridgeInterface", settings.detect_local.bridge_interface, _NO_INTERFACE.format(15))
    elif mode == "InterfaceNamePrefix" and not _PREFIX.fullmatch(settings.detect_local.interface_name_prefix):
        prefix = settings.detect_local.interface_name_prefix  # nft takes 15 characters with the asterisk
        yield _invalid("detectLocal.interfaceNamePrefix", prefix, _NO_INTERFACE.format(14))
    elif mode == "ClusterCIDR":
        yield from _cluster_cidrs(settings.cluster_cidrs)


def _cluster_cidrs(cidrs: tuple[str, ...]) -> Iterator[Problem]:
    if len(cidrs) > 2:
        yield _invalid("clusterCIDR", cidrs, _CIDR_PAIR)
        return
    wrong = [cidr for cidr in cidrs if not _is_cidr(cidr)]
    for cidr in wrong:
        yield _invalid("clusterCIDR", cidr, _CIDR_BLOCK)
    versions = [network.version for cidr in cidrs if (network := parse_network(cidr))]
    if not wrong and len(set(versions)) < len(versions):
        yield _invalid("clusterCIDR", cidrs, _CIDR_PAIR)


def _is_cidr(text: str) -> bool:
    """Returns whether it is an address with a prefix length.

    A bare address is not, and neither is one with a netmask.
    """
    return bool(re.fullmatch(r"[0-9a-fA-F:.]+/[0-9]{1,3}", text)) and parse_network(text) is not None


def _rest(settings: Settings) -> Iterator[Problem]:
    if not _is_port_range(settings.port_range):
        yield _invalid("portRange", settings.port_range, "must be a valid port range (e.g. 300-2000)")
    if settings.show_hidden_metrics_for_version not in {"", _PREVIOUS_MINOR}:
        only = f"must be omitted or have the value '{_PREVIOUS_MINOR}'. Only the previous minor version is allowed"
        field = "showHiddenMetricsForVersion"
        yield _invalid(field, settings.show_hidden_metrics_for_version, f"--show-hidden-metrics-for-version {only}")
    yield from _logging(settings.logging)


def _is_port_range(text: str) -> bool:
    """300-2000, 300+1700 or 300, and nothing."""
    match = re.fullmatch(r"\s*([0-9]{1,5})(?:([-+])([0-9]{1,5}))?\s*", text)
    if not match:
        return not text.strip()
    first, last = int(match[1]), int(match[3] or match[1])
    if match[2] == "+":
        last = min(first + last, 65535)
    return first <= last <= 65535


def _logging(logging: Logging) -> Iterator[Problem]:
    if logging.format not in {"text", "json"}:
        yield _invalid("logging.format", logging.format, "Unsupported log format")
    for name in ("text", "json"):
        routing = getattr(logging.options, name)
        wanted = {"splitStream": routing.split_stream, "infoBufferSize": routing.info_buffer_size != "0"}
        for field in (field for field, is_used in wanted.items() if is_used):
            yield Problem(f"logging.options.{name}.{field}", "Forbidden: Feature LoggingAlphaOptions is disabled")


def _unsupported(settings: Settings) -> Iterator[Problem]:
    """Yields settings that kube-proxy supports and kdns does not, if they differ from the default."""
    for gate in sorted(set(settings.feature_gates) - set(GATES)):
        yield Problem(f"featureGates.{gate}", f"Forbidden: kdns has no such feature gate; it has {', '.join(GATES)}")
    for name, reason in (
        ("vmodule", "`-v` says how much is logged"),
        ("flush_frequency_s", "every line is written at once"),
    ):
        if getattr(settings.logging, name) != getattr(Logging(), name):
            yield Problem(f"logging.{api_name(name)}", f"Forbidden: kdns does not have it: {reason}")
    client = settings.client_connection
    for field, value in (("contentType", client.content_type), ("acceptContentTypes", client.accept_content_types)):
        if value and not _CONTENT_TYPES.intersection(part.strip() for part in value.split(",")):
            yield _invalid(f"clientConnection.{field}", value, "kdns reads and writes application/json")
    if settings.windows_run_as_service:
        yield Problem("windowsRunAsService", "Forbidden: kdns does not run as a service of Windows")


def _remarks(settings: Settings) -> Iterator[Problem]:
    if settings.mode == "ipvs":
        yield Problem("mode", "ipvs is deprecated in Kubernetes since 1.35. Consider using `nftables`")
    if settings.mode in {"iptables", "ipvs"} and not settings.node_port_addresses:
        why = "is unset; NodePort connections will be accepted on all local IPs. Consider using `primary`"
        yield Problem("nodePortAddresses", why)
    mode = MODES[settings.mode]
    if settings.node_port_addresses and not mode.restricts_node_ports:
        yield Problem("nodePortAddresses", f"has no effect in mode {mode.name}: node ports are at all addresses")
    yield from _unserved_loopback(settings, mode)
    if settings.enable_profiling:
        yield Problem("enableProfiling", "has no effect: `py-spy dump` and `py-spy top` show the stacks of the process")
    knows_pods = settings.detect_local_mode != "ClusterCIDR" or settings.cluster_cidr
    if not (knows_pods or settings.masquerade_all or mode.treats_clients_alike):
        why = "is unset: Pods of this node cannot be told from others, so no packet to a cluster IP is masqueraded"
        yield Problem("clusterCIDR", why)


def _unserved_loopback(settings: Settings, mode: Semantics) -> Iterator[Problem]:
    """Yields the items of nodePortAddresses that name loopback addresses where the mode has no node ports."""
    for index, text in enumerate(settings.node_port_addresses if mode.restricts_node_ports else ()):
        networks = node_port_networks(text)
        families = {family_of(each) for each in networks if not isinstance(each, str) and each.is_loopback}
        if not families:
            continue
        field, effect = f"nodePortAddresses[{index}]", f"{text} has no effect in mode {mode.name}"
        if not families & mode.loopback_node_ports:
            others = [each.name for each in MODES.values() if families & each.loopback_node_ports]
            where = f"node ports are at loopback addresses in mode {' and '.join(others)} only"
            yield Problem(field, f"{effect}: {where}. Consider using the node's addresses")
        elif not settings.iptables.localhost_node_ports:
            yield Problem(field, f"{effect} while iptables.localhostNodePorts is false")
