"""kube-proxy's flags (1.36): the table, flags to Settings, and values back to text.

With --config, flags that set a field are ignored, except those of logging and --hostname-override, as in kube-proxy.
Periods are those of the mode: --ipvs-*sync-period in mode ipvs, --iptables-*sync-period in all others, and where
mode iptables takes the place of ipvs.

Differs: --proxy-port-range and --udp-timeout exist, which kube-proxy removed with its mode userspace, and
--protected-ports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from kdns.durations import format_duration, parse_duration
from kdns.errors import InputError
from kdns.proxy.modes import NAMES
from kdns.proxy.settings.document import with_port
from kdns.proxy.settings.settings import HEALTHZ_PORT, METRICS_PORT, Settings, VModule, api_name


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `path` is that of its field in Settings, "" for flags without a field; `kind` is a key of KINDS.

    `is_fixed` is for flags that kdns takes with their default only, as the help then says why.
    """

    name: str
    kind: str
    path: str
    help: str
    deprecated: str = ""
    is_fixed: bool = False


FLAGS: Final = (
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
    Flag("proxy-mode", "ProxyMode", "mode", f"{', '.join(NAMES[:-1])} or {NAMES[-1]}."),
    Flag("masquerade-all", "bool", "masquerade_all", "Masquerade all packets to cluster IPs."),
    Flag("iptables-masquerade-bit", "int32", "iptables.masquerade_bit", "Modes iptables, ipvs: the mark's bit, 0-31."),
    Flag("iptables-localhost-nodeports", "bool", "iptables.localhost_node_ports", "Node ports at 127.0.0.1."),
    Flag("iptables-sync-period", "duration", "sync_period", "The longest retry delay; not in mode ipvs."),
    Flag("iptables-min-sync-period", "duration", "min_sync_period", "From one sync to the next; not in mode ipvs."),
    Flag("ipvs-sync-period", "duration", "sync_period", "Mode ipvs: the longest retry delay."),
    Flag("ipvs-min-sync-period", "duration", "min_sync_period", "Mode ipvs: from one sync to the next."),
    Flag("ipvs-scheduler", "string", "ipvs.scheduler", "Mode ipvs: how an endpoint is chosen, such as rr."),
    Flag("ipvs-exclude-cidrs", "stringSlice", "ipvs.exclude_cidrs", "Mode ipvs: addresses that clean-up leaves alone."),
    Flag("ipvs-strict-arp", "bool", "ipvs.strict_arp", "Mode ipvs: answer ARP for own addresses only."),
    Flag("ipvs-tcp-timeout", "duration", "ipvs.tcp_timeout_s", "Mode ipvs: idle TCP; 0 leaves it."),
    Flag("ipvs-tcpfin-timeout", "duration", "ipvs.tcp_fin_timeout_s", "Mode ipvs: TCP after a FIN; 0 leaves it."),
    Flag("ipvs-udp-timeout", "duration", "ipvs.udp_timeout_s", "Mode ipvs: idle UDP; 0 leaves it."),
    Flag("network-name", "string", "winkernel.network_name", "Mode kernelspace: the Pods' network; or $KUBE_NETWORK."),
    Flag("source-vip", "string", "winkernel.source_vip", "Mode kernelspace: the source address on an overlay network."),
    Flag("enable-dsr", "bool", "winkernel.enable_dsr", "Mode kernelspace: endpoints answer clients directly (DSR)."),
    Flag(
        "root-hnsendpoint-name",
        "string",
        "winkernel.root_hns_endpoint_name",
        "Mode kernelspace: the endpoint for health checks of load balancers; cbr0 without one.",
    ),
    Flag(
        "forward-healthcheck-vip",
        "bool",
        "winkernel.forward_health_check_vip",
        "Mode kernelspace: forward health checks at load balancer IPs to the node.",
    ),
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
    Flag("udp-timeout", "duration", "udp_idle_timeout_s", "Mode userspace: how long an idle UDP client is known."),
    Flag("proxy-port-range", "string", "port_range", "Mode userspace: the relays' ports, such as 300-2000."),
    Flag("healthz-port", "int32", "", "The port of /healthz; 0 for nowhere.", "use --healthz-bind-address"),
    Flag("metrics-port", "int32", "", "The port of /metrics; 0 for nowhere.", "use --metrics-bind-address"),
    Flag("logging-format", "string", "logging.format", "text, or json also on a terminal."),
    Flag(
        "log-flush-frequency",
        "duration",
        "logging.flush_frequency_s",
        "5s only: every line is written at once.",
        is_fixed=True,
    ),
    Flag("v", "Level", "logging.verbosity", "What is logged: from 4 on debug messages too."),
    Flag("vmodule", "pattern=N", "logging.vmodule", "Refused: -v says how much is logged.", is_fixed=True),
    Flag(
        "log-text-split-stream",
        "bool",
        "logging.options.text.split_stream",
        "Refused: logs go to stderr.",
        is_fixed=True,
    ),
    Flag(
        "log-text-info-buffer-size",
        "quantity",
        "logging.options.text.info_buffer_size",
        "0 only: every line is written at once.",
        is_fixed=True,
    ),
    Flag(
        "log-json-split-stream",
        "bool",
        "logging.options.json.split_stream",
        "Refused: logs go to stderr.",
        is_fixed=True,
    ),
    Flag(
        "log-json-info-buffer-size",
        "quantity",
        "logging.options.json.info_buffer_size",
        "0 only: every line is written at once.",
        is_fixed=True,
    ),
)
BY_NAME: Final = {flag.name: flag for flag in FLAGS}


@dataclass(frozen=True, slots=True)
class FlagValues:
    """The flags of one command line, by name, each in its type."""

    given: Mapping[str, Any]

    @property
    def config(self) -> str:
        """The configuration file, "" for none."""
        return str(self.given.get("config", ""))

    @property
    def ignored(self) -> tuple[str, ...]:
        return tuple(name for name in self.given if self.config and not _counts_beside_a_file(BY_NAME[name]))

    @property
    def deprecated(self) -> tuple[Flag, ...]:
        return tuple(flag for name in self.given if (flag := BY_NAME[name]).deprecated)


def flag_values(texts: Mapping[str, str]) -> FlagValues:
    """Returns the values of flags from their texts; InputError with every text that is not of its flag's type."""
    values, wrong = {}, []
    for name, text in texts.items():
        try:
            values[name] = KINDS[BY_NAME[name].kind](text)
        except ValueError as error:
            wrong.append(f'invalid argument "{text}" for "--{name}" flag: {error}')
    if wrong:
        raise InputError("\n".join(wrong))
    return FlagValues(values)


def settings_from_flags(flags: FlagValues) -> Settings:
    """Returns the settings of a command line without --config."""
    settings = _with(Settings(), flags.given)
    return replace(
        settings,
        healthz_bind_address=_listen_address("healthz", settings.healthz_bind_address, HEALTHZ_PORT, flags),
        metrics_bind_address=_listen_address("metrics", settings.metrics_bind_address, METRICS_PORT, flags),
    )


def _listen_address(name: str, address: str, default_port: int, flags: FlagValues) -> str:
    """Returns the address with its port; "" for port 0. --NAME-port is for an address without a port."""
    port = int(flags.given.get(f"{name}-port", default_port))
    host = address if f"{name}-bind-address" in flags.given else address.rpartition(":")[0]
    return with_port(host, port) if port else ""


def settings_beside_file(settings: Settings, flags: FlagValues) -> Settings:
    count = {name: value for name, value in flags.given.items() if _counts_beside_a_file(BY_NAME[name])}
    merged = _with(settings, count)
    vmodule = tuple(flags.given.get("vmodule", ())) + settings.logging.vmodule
    return replace(merged, logging=replace(merged.logging, vmodule=vmodule))


def _counts_beside_a_file(flag: Flag) -> bool:
    is_logging = flag.path.startswith("logging.")
    return is_logging or flag.name == "hostname-override" or (not flag.path and not flag.deprecated)


def flag_at(field: str, flags: FlagValues, settings: Settings) -> str:
    """Returns the flag that sets a field, such as iptables.masqueradeBit, in this mode; "" if it is that of a file."""
    names: tuple[str, ...] = (*flags.given, *(() if flags.config else BY_NAME))
    for name in names:
        path = _path(BY_NAME[name], settings.mode)
        if path and ".".join(map(api_name, path.split("."))) == field.partition("[")[0]:
            return name
    return ""


def _with(settings: Settings, given: Mapping[str, Any]) -> Settings:
    if name := given.get("hostname-override"):
        if not name.strip():
            raise InputError("empty hostname-override is invalid")
        given = {**given, "hostname-override": name.strip().lower()}
    mode = str(given.get("proxy-mode", settings.mode))
    for name, value in given.items():
        if path := _path(BY_NAME[name], mode):
            settings = _replaced(settings, path.split("."), value)
    return settings


def _path(flag: Flag, mode: str) -> str:
    """Returns the path of the flag's field in this mode, "" without a field."""
    if flag.path == "masquerade_all":
        return f"{'iptables' if mode in {'iptables', 'ipvs', 'kernelspace'} else 'nftables'}.masquerade_all"
    if flag.path not in {"sync_period", "min_sync_period"}:
        return flag.path
    if flag.name.startswith("ipvs-"):
        return f"ipvs.{flag.path}_s" if mode == "ipvs" else ""
    return f"{'iptables' if mode == 'ipvs' else Settings(mode=mode).part[0]}.{flag.path}_s"


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


def _vmodule(text: str) -> tuple[VModule, ...]:
    found = []
    for part in filter(None, text.split(",")):
        pattern, separator, level = part.partition("=")
        if not separator or not pattern or not level.isdecimal():
            raise ValueError(f'"{part}" does not have the pattern=N format')
        found.append(VModule(pattern, int(level)))
    return tuple(found)


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
    "pattern=N": _vmodule,
    "quantity": str,
}
"""How texts are parsed, by the type names of kube-proxy's help. Validation of values comes with the settings."""


_PORTS: Final = {"healthz-port": HEALTHZ_PORT, "metrics-port": METRICS_PORT}


def all_flags(given: Mapping[str, Any]) -> dict[str, str]:
    """Returns all flags as text by name, given or default, as Go's programs print them; --config has no effect."""
    return {flag.name: _text(flag.kind, given.get(flag.name, _default(flag))) for flag in FLAGS}


def _default(flag: Flag) -> Any:
    path = flag.path
    if not path:
        return _PORTS.get(flag.name, False if flag.kind == "bool" else "")
    if path in {"sync_period", "min_sync_period"}:
        path = f"{'ipvs' if flag.name.startswith('ipvs-') else 'iptables'}.{path}_s"
    elif path == "masquerade_all":
        path = f"iptables.{path}"
    return reduce(getattr, path.split("."), Settings())


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
        case "pattern=N":
            return ",".join(f"{each.file_pattern}={each.verbosity}" for each in value)
        case _:
            return str(value)
