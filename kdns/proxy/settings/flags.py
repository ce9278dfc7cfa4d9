"""kube-proxy's flags (1.36): the table, flags to Settings, and values back to text.

With --config, flags that set a field are ignored, except those of logging and --hostname-override, as in kube-proxy.
Flags of modes are in the modes' sections.

Differs: --protected-ports and flags of mode userspace exist; kube-proxy's flags of UNSUPPORTED are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import reduce
from typing import Any, Final

from kdns.durations import format_duration, parse_duration
from kdns.errors import InputError
from kdns.proxy.modes import MODES, sections
from kdns.proxy.settings.document import NOT_SUPPORTED, with_port
from kdns.proxy.settings.section import Flag, Section, api_name
from kdns.proxy.settings.settings import DEFAULT_MODE, HEALTHZ_PORT, METRICS_PORT, Settings

GENERAL: Final = (
    Flag("config", "string", "", "The configuration file; flags that set its fields are ignored then."),
    Flag("write-config-to", "string", "", "Write the default configuration to this file and exit."),
    Flag("cleanup", "bool", "", "Remove the rules of all modes and exit."),
    Flag("init-only", "bool", "", "Set what needs more than CAP_NET_ADMIN, and exit."),
    Flag("master", "string", "", "The API server's address, in place of the kubeconfig's."),
    Flag("kubeconfig", "string", "client_connection.kubeconfig", "How to reach the API server."),
    Flag("kube-api-content-type", "string", "client_connection.content_type", "Content type of requests."),
    Flag("kube-api-burst", "int32", "client_connection.burst", "Requests in a burst."),
    Flag("kube-api-qps", "float32", "client_connection.qps", "Requests a second."),
    Flag("feature-gates", "mapStringBool", "feature_gates", "NAME=true|false, separated by commas."),
    Flag("hostname-override", "string", "hostname_override", "The node's name, where it is not the host's."),
    Flag("bind-address", "ip", "bind_address", "The node's own address; nothing listens on it."),
    Flag("healthz-bind-address", "ipport", "healthz_bind_address", "Where /healthz and /livez are served."),
    Flag("metrics-bind-address", "ipport", "metrics_bind_address", "Where /metrics is served; empty for nowhere."),
    Flag("bind-address-hard-fail", "bool", "bind_address_hard_fail", "Exit where an address cannot be listened on."),
    Flag("profiling", "bool", "enable_profiling", "Accepted, without effect: py-spy shows stacks."),
    Flag("show-hidden-metrics-for-version", "string", "show_hidden_metrics_for_version", "The previous minor version."),
    Flag("proxy-mode", "ProxyMode", "mode", f"{', '.join([*MODES][:-1])} or {[*MODES][-1]}."),
    Flag("masquerade-all", "bool", "masquerade_all", "Masquerade all packets to cluster IPs.", is_of_mode=True),
    Flag(
        "detect-local-mode",
        "LocalMode",
        "detect_local_mode",
        "How Pods of this node are known: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix.",
    ),
    Flag("pod-bridge-interface", "string", "detect_local.bridge_interface", "… by this bridge."),
    Flag("pod-interface-name-prefix", "string", "detect_local.interface_name_prefix", "… by interfaces named so."),
    Flag("cluster-cidr", "string", "cluster_cidr", "… by these addresses, at most one range per family."),
    Flag(
        "nodeport-addresses",
        "stringSlice",
        "node_port_addresses",
        "Node ports: CIDRs, primary, localhost, all.",
    ),
    Flag("protected-ports", "stringSlice", "protected_ports", "Ports that no Service gets; [CIDR:]PORT[/PROTOCOL]."),
    Flag("oom-score-adj", "int32", "oom_score_adj", "The process's oom_score_adj, from -1000 to 1000."),
    Flag("conntrack-max-per-core", "int32", "conntrack.max_per_core", "Tracked connections per CPU; 0 leaves it."),
    Flag("conntrack-min", "int32", "conntrack.min", "Tracked connections at least."),
    Flag(
        "conntrack-tcp-timeout-established", "duration", "conntrack.tcp_established_timeout_s", "Idle TCP; 0 leaves it."
    ),
    Flag("conntrack-tcp-timeout-close-wait", "duration", "conntrack.tcp_close_wait_timeout_s", "TCP in CLOSE_WAIT."),
    Flag("conntrack-tcp-be-liberal", "bool", "conntrack.tcp_be_liberal", "Track TCP packets outside of the window."),
    Flag("conntrack-udp-timeout", "duration", "conntrack.udp_timeout_s", "UDP without an answer; 0 leaves it."),
    Flag(
        "conntrack-udp-timeout-stream", "duration", "conntrack.udp_stream_timeout_s", "UDP with answers; 0 leaves it."
    ),
    Flag("config-sync-period", "duration", "config_sync_period_s", "How often the API's objects are listed again."),
    Flag("logging-format", "string", "logging.format", "text, or json also on a terminal."),
    Flag("v", "Level", "logging.verbosity", "What is logged: from 4 on debug messages too."),
)
OWNERS: Final[Mapping[str, type[Section]]] = {flag.name: own for own in sections() for flag in own.FLAGS}
"""The sections of flags that belong to modes."""
FLAGS: Final = (*GENERAL, *(flag for own in sections() for flag in own.FLAGS))
BY_NAME: Final = {flag.name: flag for flag in FLAGS}
UNSUPPORTED: Final = (
    "healthz-port",
    "metrics-port",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-json-split-stream",
    "log-text-info-buffer-size",
    "log-text-split-stream",
    "vmodule",
)
"""Flags of kube-proxy's that are refused."""


def flag_values(texts: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of flags, by name, from their texts; InputError with every text not of its flag's type."""
    values, wrong = {}, []
    for name, text in texts.items():
        if name in UNSUPPORTED:
            wrong.append(f"--{name}: {NOT_SUPPORTED}")
            continue
        try:
            values[name] = KINDS[BY_NAME[name].kind](text)
        except ValueError as error:
            wrong.append(f'invalid argument "{text}" for "--{name}" flag: {error}')
    if wrong:
        raise InputError("\n".join(wrong))
    return values


def settings_from_flags(flags: Mapping[str, Any]) -> Settings:
    settings = _with(Settings(), flags)
    return replace(
        settings,
        healthz_bind_address=with_port(settings.healthz_bind_address, HEALTHZ_PORT),
        metrics_bind_address=with_port(settings.metrics_bind_address, METRICS_PORT),
    )


def settings_beside_file(settings: Settings, flags: Mapping[str, Any]) -> Settings:
    return _with(settings, {name: value for name, value in flags.items() if counts_beside_a_file(name)})


def counts_beside_a_file(name: str) -> bool:
    path = BY_NAME[name].path
    return not path or path.startswith("logging.") or name == "hostname-override"


def flag_at(field: str, flags: Mapping[str, Any], settings: Settings) -> str:
    """Returns the flag that sets a field, such as iptables.masqueradeBit, in this mode; "" if it is that of a file."""
    for name in flags if flags.get("config") else (*flags, *BY_NAME):
        flag, own = BY_NAME[name], _owner(BY_NAME[name], settings.mode)
        path = [*([own.PATH] if own and own.PATH else []), *map(api_name, flag.path.split("."))]
        if flag.path and ".".join(path) == field.partition("[")[0]:
            return name
    return ""


def _with(settings: Settings, given: Mapping[str, Any]) -> Settings:
    if name := given.get("hostname-override"):
        if not name.strip():
            raise InputError("empty hostname-override is invalid")
        given = {**given, "hostname-override": name.strip().lower()}
    mode = str(given.get("proxy-mode", settings.mode))
    for name, value in given.items():
        settings = with_flag(settings, BY_NAME[name], value, mode)
    return settings


def with_flag(settings: Settings, flag: Flag, value: object, mode: str) -> Settings:
    """Returns the settings with the flag's field set to this value, as in this mode."""
    if own := _owner(flag, mode):
        return settings.with_section(_replaced(settings.section(own), [flag.path], value))
    settings_with_it: Settings = _replaced(settings, flag.path.split("."), value) if flag.path else settings
    return settings_with_it


def _owner(flag: Flag, mode: str) -> type[Section] | None:
    """Returns the section of the flag's field in this mode; None for a general field, or no field."""
    of_mode = MODES.get(mode, MODES[DEFAULT_MODE])
    for section in (of_mode.periods, of_mode.masquerading) if flag.is_of_mode else ():
        has_flag = any(other.path == flag.path for other in section.FLAGS if other is not flag)
        if not has_flag and flag.path in {field.name for field in fields(section)}:
            return section
    return OWNERS.get(flag.name)


def _replaced(part: Any, path: list[str], value: object) -> Any:
    name, *rest = path
    return replace(part, **{name: _replaced(getattr(part, name), rest, value) if rest else value})


def _bool(text: str) -> bool:
    """As Go's strconv.ParseBool."""
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise ValueError("expected true or false")


def _int32(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 1 << 31
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError("expected a whole number of 32 bits")
    return number


def _float32(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number") from None


def _slice(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _gates(text: str) -> dict[str, bool]:
    found = {}
    for part in filter(None, text.split(",")):
        name, separator, value = part.partition("=")
        if not separator:
            raise ValueError(f"missing bool value for {name.strip()}")
        found[name.strip()] = _bool(value.strip())
    return found


KINDS: Final[Mapping[str, Callable[[str], Any]]] = {
    "string": str,
    "bool": _bool,
    "int32": _int32,
    "float32": _float32,
    "duration": parse_duration,
    "stringSlice": _slice,
    "mapStringBool": _gates,
    "ip": str,
    "ipport": str,
    "ProxyMode": lambda text: text or Settings().mode,
    "LocalMode": lambda text: text or Settings().detect_local_mode,
    "Level": _int32,
}
"""How texts are parsed, by the type names of kube-proxy's help. Validation of values comes with the settings."""


def all_flags(given: Mapping[str, Any]) -> dict[str, str]:
    """Returns all flags as text by name, given or default, as Go's programs print them; --config has no effect."""
    return {flag.name: _text(flag.kind, given.get(flag.name, _default(flag))) for flag in FLAGS}


def _default(flag: Flag) -> Any:
    if own := _owner(flag, DEFAULT_MODE):
        return getattr(own(), flag.path)
    if flag.path:
        return reduce(getattr, flag.path.split("."), Settings())
    return False if flag.kind == "bool" else ""


def _text(kind: str, value: Any) -> str:
    match kind:
        case "duration":
            return format_duration(value)
        case "bool":
            return str(value).lower()
        case "float32":
            return f"{value:g}"
        case "stringSlice":
            return f"[{','.join(value)}]"
        case "mapStringBool":
            return ",".join(f"{name}={str(is_on).lower()}" for name, is_on in sorted(value.items()))
        case _:
            return str(value)
