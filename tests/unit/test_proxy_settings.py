"""KubeProxyConfiguration files and kube-proxy's flags: what they say, and every way in which they can be wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kdns.aio.proxyconfigs import load_settings, parse_settings, settings_of, write_settings
from kdns.cli_node import flag_texts, kube_proxy_flags
from kdns.cluster.objects import Node, NodeAddress, NodeLabels, NodeMeta, NodeSpec, NodeStatus
from kdns.errors import InputError, ManifestError, SettingsError
from kdns.proxy.config import NFTABLES, LocalPods, NodeView, parsed_address, parsed_network
from kdns.proxy.durations import seconds, written
from kdns.proxy.node import node_view, proxy_config
from kdns.proxy.settings import Settings, VModule
from kdns.proxy.settings_check import problems, remarks
from kdns.proxy.settings_file import decoded, encoded
from kdns.proxy.settings_flags import BY_NAME, FLAGS, flag_values, settings_from_flags

HEAD = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}
POSITIVE, NOT_NEGATIVE = "must be greater than 0", "must be greater than or equal to 0"
BIT, CIDR = "must be within the range [0, 31]", "must be a valid CIDR"
PAIR = "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]"
BLOCK = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"
LOCAL_MODES = 'supported values: "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix", ""'
MODES = (
    "must be iptables, ipvs, nftables, userspace or blank (blank means the best-available proxy [currently nftables])"
)
MINOR = "must be omitted or have the value '1.35'. Only the previous minor version is allowed"


def read(text: str) -> Settings:
    settings, wrong = decoded({**HEAD, **(yaml.safe_load(text) or {})})
    assert wrong == ()
    return settings


def said(settings: Settings) -> list[str]:
    return [str(problem) for problem in problems(settings)]


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("", "mode", "nftables"),
        ("mode: ''", "mode", "nftables"),
        ("mode: iptables", "mode", "iptables"),
        ("", "bind_address", "0.0.0.0"),
        ("", "healthz_bind_address", "0.0.0.0:10256"),
        ("", "metrics_bind_address", "127.0.0.1:10249"),
        ("bindAddress: '::'", "healthz_bind_address", "[::]:10256"),
        ("bindAddress: '::'", "metrics_bind_address", "[::1]:10249"),
        ("bindAddress: fd00::1\nmetricsBindAddress: 10.0.0.1", "metrics_bind_address", "10.0.0.1:10249"),
        ("healthzBindAddress: 'fd00::1'", "healthz_bind_address", "[fd00::1]:10256"),
        ("healthzBindAddress: 10.0.0.1:80", "healthz_bind_address", "10.0.0.1:80"),
        ("", "client_connection.qps", 5.0),
        ("clientConnection: {qps: 0, burst: 0, contentType: ''}", "client_connection.burst", 10),
        ("clientConnection: {qps: 7}", "client_connection.qps", 7),
        ("", "iptables.masquerade_bit", 14),
        ("iptables: {masqueradeBit: 0}", "iptables.masquerade_bit", 0),
        ("iptables: {masqueradeBit: null}", "iptables.masquerade_bit", 14),
        ("iptables: {localhostNodePorts: false}", "iptables.localhost_node_ports", False),
        ("iptables: {minSyncPeriod: 0s}", "iptables.min_sync_period_s", 1.0),
        ("iptables: {syncPeriod: 1m30s}", "iptables.sync_period_s", 90.0),
        ("ipvs: {syncPeriod: 0s}", "ipvs.sync_period_s", 30.0),
        ("", "ipvs.min_sync_period_s", 0.0),
        ("ipvs: {strictARP: true}", "ipvs.strict_arp", True),
        ("ipvs: {excludeCIDRs: [10.0.0.0/8]}", "ipvs.exclude_cidrs", ("10.0.0.0/8",)),
        ("", "nftables.masquerade_bit", 14),
        ("nftables: {syncPeriod: 0s}", "nftables.sync_period_s", 30.0),
        ("", "nftables.min_sync_period_s", 1.0),
        ("", "conntrack.max_per_core", 32768),
        ("conntrack: {maxPerCore: 0}", "conntrack.max_per_core", 0),
        ("", "conntrack.min", 131072),
        ("", "conntrack.tcp_established_timeout_s", 86400.0),
        ("conntrack: {tcpEstablishedTimeout: 0s}", "conntrack.tcp_established_timeout_s", 0.0),
        ("conntrack: {tcpCloseWaitTimeout: null}", "conntrack.tcp_close_wait_timeout_s", 3600.0),
        ("configSyncPeriod: 0s", "config_sync_period_s", 900.0),
        ("udpIdleTimeout: 0s", "udp_idle_timeout_s", 0.25),
        ("", "oom_score_adj", -999),
        ("oomScoreAdj: 0", "oom_score_adj", 0),
        ("detectLocalMode: ''", "detect_local_mode", "ClusterCIDR"),
        ("detectLocal: {interfaceNamePrefix: veth}", "detect_local.interface_name_prefix", "veth"),
        ("nodePortAddresses: null", "node_port_addresses", ()),
        ("nodePortAddresses: [primary]", "node_port_addresses", ("primary",)),
        ("featureGates: {PreferSameTrafficDistribution: false}", "node_hints", False),
        ("", "node_hints", True),
        ("winkernel: {sourceVip: 10.0.0.1, enableDSR: true, rootHnsEndpointName: x}", "winkernel.enable_dsr", True),
        ("logging: {flushFrequency: 2s, verbosity: 4}", "logging.flush_frequency_s", 2.0),
        ("logging: {flushFrequency: 5000000000}", "logging.flush_frequency_s", 5.0),
        ("logging: {vmodule: [{filePattern: a*, verbosity: 9}]}", "logging.vmodule", (VModule("a*", 9),)),
        ("logging: {options: {json: {infoBufferSize: 0}}}", "logging.options.json.info_buffer_size", "0"),
        ("showHiddenMetricsForVersion: '1.35'", "show_hidden_metrics_for_version", "1.35"),
        ("hostnameOverride: ' N1 '", "node_name", "n1"),
        ("mode: nftables\nnftables: {masqueradeAll: true}", "masquerade_all", True),
        ("mode: nftables\niptables: {masqueradeAll: true}", "masquerade_all", False),
        ("mode: ipvs\niptables: {masqueradeAll: true, masqueradeBit: 3}", "mark", 8),
        ("mode: userspace\nnftables: {masqueradeBit: 1}", "mark", 2),
        ("windowsRunAsService: true", "windows_run_as_service", True),
    ],
)  # fmt: skip
def test_what_a_file_says(text: str, path: str, value: object) -> None:
    found: Any = read(text)
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value
    assert said(read(text)) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("bindAdress: 0.0.0.0", ["bindAdress: no such field; did you mean bindAddress?"]),
        ("clusterCidr: 10.0.0.0/8", ["clusterCidr: no such field; did you mean clusterCIDR?"]),
        ("iptables: {zzz: 1, syncperiod: 1s}", [
            "iptables.zzz: no such field", "iptables.syncperiod: no such field; did you mean syncPeriod?",
        ]),
        ("logging: {vmodule: [{file: a}]}", ["logging.vmodule[0].file: no such field"]),
        ("mode: 7", []),
        ("mode: true", ["mode: found true, wanted text"]),
        ("oomScoreAdj: '1'", ['oomScoreAdj: found "1", wanted a whole number']),
        ("oomScoreAdj: 1.5", ["oomScoreAdj: found 1.5, wanted a whole number"]),
        ("oomScoreAdj: 2147483648", ["oomScoreAdj: found 2147483648, wanted a number of 32 bits"]),
        ("bindAddressHardFail: 1", ["bindAddressHardFail: found 1, wanted true or false"]),
        ("clientConnection: {qps: fast}", ['clientConnection.qps: found "fast", wanted a number']),
        ("iptables: []", ["iptables: found a list, wanted an object"]),
        ("nodePortAddresses: primary", ['nodePortAddresses: found "primary", wanted a list']),
        ("nodePortAddresses: [{}]", ["nodePortAddresses: found an object, wanted text"]),
        ("configSyncPeriod: 15", ["configSyncPeriod: found 15, wanted a duration such as 30s or 1h30m"]),
        ("configSyncPeriod: '15'", [
            'configSyncPeriod: time: missing unit in duration "15"; wanted a duration such as 30s or 1h30m',
        ]),
        ("featureGates: {A: 1}", ["featureGates: wanted names with true or false"]),
        ("kind: Config", ["kind: found 'Config'; wanted KubeProxyConfiguration"]),
        ("apiVersion: ''\nkind: ''", [
            "apiVersion: is missing; wanted kubeproxy.config.k8s.io/v1alpha1",
            "kind: is missing; wanted KubeProxyConfiguration",
        ]),
    ],
)  # fmt: skip
def test_what_a_file_cannot_say(text: str, wrong: list[str]) -> None:
    _, found = decoded({**HEAD, **yaml.safe_load(text)})
    assert [str(problem) for problem in found] == wrong


@pytest.mark.parametrize(
    ("text", "field", "shown", "reason"),
    [
        ("mode: kernelspace", "mode", '"kernelspace"', MODES),
        ("iptables: {masqueradeBit: 32}", "iptables.masqueradeBit", "32", BIT),
        ("iptables: {masqueradeBit: -1}", "iptables.masqueradeBit", "-1", BIT),
        ("nftables: {masqueradeBit: 32}", "nftables.masqueradeBit", "32", BIT),
        ("nftables: {minSyncPeriod: -1s}", "nftables.minSyncPeriod", "-1s", NOT_NEGATIVE),
        ("nftables: {syncPeriod: 1s, minSyncPeriod: 2s}", "nftables.syncPeriod", "2s",
         "must be greater than or equal to nftables.minSyncPeriod"),
        ("mode: iptables\niptables: {syncPeriod: 1s, minSyncPeriod: 2s}", "iptables.syncPeriod", "2s",
         "must be greater than or equal to iptables.minSyncPeriod"),
        ("mode: ipvs\nipvs: {tcpTimeout: -1s}", "ipvs.tcpTimeout", "-1s", NOT_NEGATIVE),
        ("mode: ipvs\nipvs: {tcpFinTimeout: -1s}", "ipvs.tcpFinTimeout", "-1s", NOT_NEGATIVE),
        ("mode: ipvs\nipvs: {udpTimeout: -1s}", "ipvs.udpTimeout", "-1s", NOT_NEGATIVE),
        ("mode: ipvs\nipvs: {excludeCIDRs: [10.0.0.0/8, 10.0.0.1]}", "ipvs.excludeCIDRs[1]", '"10.0.0.1"', CIDR),
        ("oomScoreAdj: 1001", "oomScoreAdj", "1001", "must be within the range [-1000, 1000]"),
        ("oomScoreAdj: -1001", "oomScoreAdj", "-1001", "must be within the range [-1000, 1000]"),
        ("conntrack: {maxPerCore: -1}", "conntrack.maxPerCore", "-1", NOT_NEGATIVE),
        ("conntrack: {min: -1}", "conntrack.min", "-1", NOT_NEGATIVE),
        ("conntrack: {tcpEstablishedTimeout: -5s}", "conntrack.tcpEstablishedTimeout", "-5s", NOT_NEGATIVE),
        ("conntrack: {tcpCloseWaitTimeout: -5s}", "conntrack.tcpCloseWaitTimeout", "-5s", NOT_NEGATIVE),
        ("conntrack: {udpTimeout: -5s}", "conntrack.udpTimeout", "-5s", NOT_NEGATIVE),
        ("conntrack: {udpStreamTimeout: -5s}", "conntrack.udpStreamTimeout", "-5s", NOT_NEGATIVE),
        ("clientConnection: {burst: -5}", "clientConnection.burst", "-5", NOT_NEGATIVE),
        ("configSyncPeriod: -1s", "configSyncPeriod", "-1s", POSITIVE),
        ("udpIdleTimeout: -1s", "udpIdleTimeout", "-1s", POSITIVE),
        ("bindAddress: 10.10.12.11:2000", "bindAddress", '"10.10.12.11:2000"',
         "not a valid textual representation of an IP address"),
        ("healthzBindAddress: localhost", "healthzBindAddress", '"localhost"', "must be IP:port"),
        ("healthzBindAddress: localhost:80", "healthzBindAddress", '"localhost"', "must be a valid IP"),
        ("metricsBindAddress: 10.0.0.1:99999", "metricsBindAddress", '"99999"', "must be a valid port"),
        ("metricsBindAddress: '[::1]:0'", "metricsBindAddress", '"0"', "must be a valid port"),
        ("metricsBindAddress: '::1:x:80'", "metricsBindAddress", '"::1:x:80"', "must be IP:port"),
        ("nodePortAddresses: [primary, 10.0.0.0/8]", "nodePortAddresses[0]", '"primary"',
         "can't use both 'primary' and CIDRs"),
        ("nodePortAddresses: [10.0.0.0/8, primary]", "nodePortAddresses[1]", '"primary"',
         "can't use both 'primary' and CIDRs"),
        ("nodePortAddresses: [127.0.0.1/32, 10.20.30.40]", "nodePortAddresses[1]", '"10.20.30.40"', CIDR),
        ("nodePortAddresses: ['2001:db8:xyz/64']", "nodePortAddresses[0]", '"2001:db8:xyz/64"', CIDR),
        ("clusterCIDR: 192.168.59.0", "clusterCIDR", '"192.168.59.0"', BLOCK),
        ("clusterCIDR: 10.0.0.0/255.0.0.0", "clusterCIDR", '"10.0.0.0/255.0.0.0"', BLOCK),
        ("clusterCIDR: '192.168.0.0/16,10.0.0.0/8'", "clusterCIDR", '["192.168.0.0/16","10.0.0.0/8"]', PAIR),
        ("clusterCIDR: '10.0.0.0/8,fd00::/64,fd01::/64'", "clusterCIDR",
         '["10.0.0.0/8","fd00::/64","fd01::/64"]', PAIR),
        ("detectLocalMode: BridgeInterface", "detectLocal.bridgeInterface", '""', "must not be empty"),
        ("detectLocalMode: InterfaceNamePrefix", "detectLocal.interfaceNamePrefix", '""', "must not be empty"),
        ("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: bridge0123456789}",
         "detectLocal.bridgeInterface", '"bridge0123456789"',
         "must be at most 15 characters, without blanks, slashes, quotes and asterisks"),
        ("detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: 'veth*'}",
         "detectLocal.interfaceNamePrefix", '"veth*"',
         "must be at most 14 characters, without blanks, slashes, quotes and asterisks"),
        ("portRange: 2000-300", "portRange", '"2000-300"', "must be a valid port range (e.g. 300-2000)"),
        ("portRange: some", "portRange", '"some"', "must be a valid port range (e.g. 300-2000)"),
        ("showHiddenMetricsForVersion: '1.29'", "showHiddenMetricsForVersion", '"1.29"',
         f"--show-hidden-metrics-for-version {MINOR}"),
        ("logging: {format: xml}", "logging.format", '"xml"', "Unsupported log format"),
        ("logging: {verbosity: -1}", "logging.verbosity", "-1", NOT_NEGATIVE),
        ("logging: {vmodule: [{filePattern: 'a=b'}]}", "logging.vmodule[0]", '"a=b"',
         "File pattern must not contain equal sign or comma"),
    ],
)  # fmt: skip
def test_values_that_are_refused(text: str, field: str, shown: str, reason: str) -> None:
    assert said(read(text)) == [f"{field}: Invalid value: {shown}: {reason}"]


def test_a_period_below_zero_is_below_the_least_period_too() -> None:
    assert said(read("mode: ipvs\nipvs: {syncPeriod: -1ms}")) == [
        f"ipvs.syncPeriod: Invalid value: -1ms: {POSITIVE}",
        "ipvs.syncPeriod: Invalid value: 0s: must be greater than or equal to ipvs.minSyncPeriod",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("detectLocalMode: Guess", f'detectLocalMode: Unsupported value: "Guess": {LOCAL_MODES}'),
        (
            "logging: {format: json, vmodule: [{filePattern: a}]}",
            "logging.vmodule: Forbidden: Only supported for text log format",
        ),
        ("logging: {vmodule: [{}]}", "logging.vmodule[0]: Required value: File pattern must not be empty"),
        (
            "logging: {options: {text: {splitStream: true}}}",
            "logging.options.text.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
        ),
        (
            "logging: {options: {json: {infoBufferSize: 4Mi}}}",
            "logging.options.json.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled",
        ),
    ],
)
def test_values_that_are_refused_in_other_words(text: str, says: str) -> None:
    assert said(read(text)) == [says]


@pytest.mark.parametrize(
    "text",
    [
        "clusterCIDR: fd00:192:168:59::/64",
        "clusterCIDR: 192.168.59.0/24,fd00:192:168::/64",
        "detectLocalMode: NodeCIDR\nclusterCIDR: nonsense",
        "mode: iptables\nipvs: {tcpTimeout: -1s}",
        "mode: iptables\nnftables: {masqueradeBit: 99}",
        "portRange: 300+1700",
        "portRange: '300'",
        "featureGates: {LoggingAlphaOptions: true}\nlogging: {options: {text: {splitStream: true}}}",
    ],
)
def test_values_that_are_fine(text: str) -> None:
    assert said(read(text)) == []


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("clusterCIDR: 10.0.0.0/8", []),
        ("", ["clusterCIDR"]),
        ("nftables: {masqueradeAll: true}", []),
        ("detectLocalMode: NodeCIDR\nmode: iptables", ["nodePortAddresses"]),
        ("detectLocalMode: NodeCIDR\nfeatureGates: {Zeta: true, Alpha: false, PreferSameTrafficDistribution: true}",
         ["featureGates.Alpha", "featureGates.Zeta"]),
        ("clusterCIDR: 10.0.0.0/8\nlogging: {format: text, flushFrequency: 5s, verbosity: 0}", []),
        ("clusterCIDR: 10.0.0.0/8\nlogging: {format: json, verbosity: 2}", ["logging.format", "logging.verbosity"]),
        ("clusterCIDR: 10.0.0.0/8\nlogging: {vmodule: [{filePattern: a*, verbosity: 9}]}", ["logging.vmodule"]),
    ],
)  # fmt: skip
def test_what_is_remarked(text: str, fields: list[str]) -> None:
    assert [remark.field for remark in remarks(read(text))] == fields


def test_everything_that_is_wrong_is_told_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "# ours\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
        "iptables:\n  masqueradeBit: 40\noomScoreAdj: 5000\n"
    )
    with pytest.raises(SettingsError) as caught:
        load_settings(path, pytest.fail)
    assert str(caught.value).splitlines() == [
        f"{path}:5: iptables.masqueradeBit: Invalid value: 40: {BIT}",
        f"{path}:6: oomScoreAdj: Invalid value: 5000: must be within the range [-1000, 1000]",
    ]
    path.write_text(path.read_text() + "ipvs:\n  sched: rr\n")
    with pytest.raises(SettingsError, match=rf"^{path}:8: ipvs.sched: no such field"):
        load_settings(path, pytest.fail)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "x: holds 0 documents, wanted one"),
        ("a: 1\n---\nb: 1\n", "x:3: holds 2 documents, wanted one"),
        ("a: [", "x:1: not YAML"),
        ("mode: a\nmode: b\n", "x:2: mode: given twice"),
    ],
)
def test_what_is_no_configuration_file(text: str, says: str) -> None:
    with pytest.raises(ManifestError, match=says):
        parse_settings("x", text, pytest.fail)
    with pytest.raises(SettingsError, match="x:1: wanted an object of kind KubeProxyConfiguration"):
        parse_settings("x", "- 1\n", pytest.fail)


def test_a_written_file_says_the_same(tmp_path: Path) -> None:
    settings = replace(Settings(), cluster_cidr="10.0.0.0/8", node_port_addresses=("primary",), oom_score_adj=0)
    write_settings(tmp_path / "config.yaml", settings)
    assert load_settings(tmp_path / "config.yaml", pytest.fail) == settings
    assert decoded(encoded(Settings())) == (Settings(), ())
    with pytest.raises(InputError, match="cannot be written"):
        write_settings(tmp_path / "no" / "such", settings)


def from_flags(line: str) -> Settings:
    return settings_from_flags(flag_values(dict(word.removeprefix("--").split("=", 1) for word in line.split())))


def test_flags_and_files_have_the_same_defaults() -> None:
    assert from_flags("") == Settings() == read("")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--proxy-mode=ipvs --ipvs-sync-period=5s --ipvs-min-sync-period=1s --iptables-sync-period=9s",
         "mode: ipvs\nipvs: {syncPeriod: 5s, minSyncPeriod: 1s}"),
        ("--proxy-mode=nftables --iptables-sync-period=5s --ipvs-sync-period=9s", "nftables: {syncPeriod: 5s}"),
        ("--proxy-mode=iptables --iptables-sync-period=5s", "mode: iptables\niptables: {syncPeriod: 5s}"),
        ("--masquerade-all=true", "nftables: {masqueradeAll: true}"),
        ("--proxy-mode=iptables --masquerade-all=T", "mode: iptables\niptables: {masqueradeAll: true}"),
        ("--iptables-masquerade-bit=3", "iptables: {masqueradeBit: 3}"),
        ("--iptables-localhost-nodeports=false", "iptables: {localhostNodePorts: false}"),
        ("--cluster-cidr=10.0.0.0/8,fd00::/64", "clusterCIDR: '10.0.0.0/8,fd00::/64'"),
        ("--nodeport-addresses=10.0.0.0/8,fd00::/64", "nodePortAddresses: [10.0.0.0/8, 'fd00::/64']"),
        ("--nodeport-addresses=primary", "nodePortAddresses: [primary]"),
        ("--detect-local-mode=BridgeInterface --pod-bridge-interface=cni0",
         "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}"),
        ("--pod-interface-name-prefix=veth", "detectLocal: {interfaceNamePrefix: veth}"),
        ("--feature-gates=A=true,B=false", "featureGates: {A: true, B: false}"),
        ("--kube-api-qps=9.5 --kube-api-burst=20 --kubeconfig=/k",
         "clientConnection: {qps: 9.5, burst: 20, kubeconfig: /k}"),
        ("--conntrack-tcp-timeout-established=0s --conntrack-max-per-core=0 --conntrack-tcp-be-liberal=true",
         "conntrack: {tcpEstablishedTimeout: 0s, maxPerCore: 0, tcpBeLiberal: true}"),
        ("--conntrack-udp-timeout=10s --conntrack-udp-timeout-stream=1m",
         "conntrack: {udpTimeout: 10s, udpStreamTimeout: 1m}"),
        ("--hostname-override=Node-1", "hostnameOverride: node-1"),
        ("--healthz-bind-address=10.0.0.1", "healthzBindAddress: 10.0.0.1:10256"),
        ("--healthz-port=8080 --metrics-port=8081",
         "healthzBindAddress: 0.0.0.0:8080\nmetricsBindAddress: 127.0.0.1:8081"),
        ("--healthz-bind-address=::1 --healthz-port=8080", "healthzBindAddress: '[::1]:8080'"),
        ("--healthz-bind-address=::1 --bind-address=::",
         "bindAddress: '::'\nhealthzBindAddress: '[::1]:10256'\nmetricsBindAddress: 127.0.0.1"),
        ("--oom-score-adj=0 --profiling=true --bind-address-hard-fail=1",
         "oomScoreAdj: 0\nenableProfiling: true\nbindAddressHardFail: true"),
        ("--ipvs-scheduler=lc --ipvs-strict-arp=true --ipvs-exclude-cidrs=10.0.0.0/8 --ipvs-tcpfin-timeout=1s",
         "ipvs: {scheduler: lc, strictARP: true, excludeCIDRs: [10.0.0.0/8], tcpFinTimeout: 1s}"),
        ("--v=4 --vmodule=a=1,b*=0 --logging-format=json",
         "logging: {verbosity: 4, format: json, vmodule: [{filePattern: a, verbosity: 1}, {filePattern: b*}]}"),
        ("--udp-timeout=1s --proxy-port-range=300-400", "udpIdleTimeout: 1s\nportRange: 300-400"),
        ("--proxy-mode= --detect-local-mode=", ""),
    ],
)  # fmt: skip
def test_flags_say_what_files_say(line: str, text: str) -> None:
    assert from_flags(line) == read(text)


def test_flags_turn_servers_off() -> None:
    assert from_flags("--healthz-port=0").healthz_bind_address == ""
    settings = from_flags("--metrics-bind-address=")
    assert (settings.metrics_bind_address, said(settings)) == ("", [])


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("oom-score-adj", "x", "wanted a whole number of 32 bits"),
        ("conntrack-min", "2147483648", "wanted a whole number of 32 bits"),
        ("kube-api-qps", "x", "wanted a number"),
        ("profiling", "yes", "wanted true or false"),
        ("config-sync-period", "5", 'time: missing unit in duration "5"'),
        ("config-sync-period", "5y", 'time: unknown unit "y" in duration "5y"'),
        ("config-sync-period", "", 'time: invalid duration ""'),
        ("feature-gates", "A", "missing bool value for A"),
        ("feature-gates", "A=maybe", "wanted true or false"),
        ("vmodule", "a", '"a" does not have the pattern=N format'),
    ],
)
def test_flags_of_another_type(name: str, text: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        flag_values({name: text})
    assert str(caught.value) == f'invalid argument "{text}" for "--{name}" flag: {why}'


def test_what_is_wrong_with_a_flag_names_the_flag() -> None:
    flags = flag_values({"iptables-masquerade-bit": "40", "iptables-sync-period": "-1s", "oom-score-adj": "3000"})
    with pytest.raises(SettingsError) as caught:
        settings_of(flags, lambda _: None)
    assert sorted(caught.value.problems) == [
        f"--iptables-masquerade-bit: Invalid value: 40: {BIT}",
        f"--iptables-sync-period: Invalid value: -1s: {POSITIVE}",
        "--iptables-sync-period: Invalid value: 1s: must be greater than or equal to nftables.minSyncPeriod",
        "--oom-score-adj: Invalid value: 3000: must be within the range [-1000, 1000]",
    ]
    with pytest.raises(InputError, match="empty hostname-override is invalid"):
        settings_of(flag_values({"hostname-override": " "}), pytest.fail)


def test_beside_a_file_few_flags_count(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        yaml.safe_dump({**HEAD, "clusterCIDR": "10.0.0.0/8", "logging": {"vmodule": [{"filePattern": "b"}]}})
    )
    texts = {"config": str(path), "hostname-override": "N1", "v": "3", "vmodule": "a=1"}
    ignored = {"cluster-cidr": "10.1.0.0/16", "healthz-port": "0"}
    warnings: list[str] = []
    settings = settings_of(flag_values(texts | ignored), warnings.append)
    assert (settings.cluster_cidr, settings.node_name, settings.logging.verbosity) == ("10.0.0.0/8", "n1", 3)
    assert settings.logging.vmodule == (VModule("a", 1), VModule("b", 0))
    assert settings.healthz_bind_address == "0.0.0.0:10256"
    assert warnings == [
        "--healthz-port is deprecated, use --healthz-bind-address",
        "with --config these do not count: --cluster-cidr, --healthz-port",
        f"{path}:5: logging.vmodule: has no effect in kdns: `kdns --log-level` says how much is logged",
    ]


def test_flags_on_a_command_line() -> None:
    seen: dict[str, str] = {}

    @click.command()
    @kube_proxy_flags
    def command(**given: str | None) -> None:
        seen.update(flag_texts(given))

    line = ["--masquerade-all", "--profiling=false", "--proxy-mode", "nftables", "-v", "2", "--cleanup"]
    assert CliRunner().invoke(command, line).exit_code == 0
    assert seen == {
        "masquerade-all": "true",
        "profiling": "false",
        "proxy-mode": "nftables",
        "v": "2",
        "cleanup": "true",
    }
    shown = CliRunner().invoke(command, ["--help"], terminal_width=200).stdout
    assert {flag.name for flag in FLAGS if f"--{flag.name} " in shown} == {f.name for f in FLAGS if not f.deprecated}
    assert len(BY_NAME) == len(FLAGS)


N1 = Node(
    NodeMeta("n1", NodeLabels("a")),
    NodeSpec("10.244.1.0/24", ("10.244.1.0/24", "fd00:1::/80")),
    NodeStatus((
        NodeAddress("ExternalIP", "198.51.100.1"), NodeAddress("InternalIP", "192.0.2.1"),
        NodeAddress("InternalIP", "fd00::1"), NodeAddress("Hostname", "n1"), NodeAddress("InternalIP", "192.0.2.9"),
    )),
)  # fmt: skip


def pods(*texts: str) -> LocalPods:
    return LocalPods(tuple(network for text in texts if (network := parsed_network(text))))


def addresses(*texts: str) -> tuple[Any, ...]:
    return tuple(map(parsed_address, texts))


@pytest.mark.parametrize(
    ("node", "bind", "known", "expected"),
    [
        (N1, "0.0.0.0", None, NodeView("n1", "a", addresses("192.0.2.1", "fd00::1"),
         addresses("fd00::1", "192.0.2.1", "192.0.2.9", "198.51.100.1"))),
        (N1, "198.51.100.7", (), NodeView("n1", "a", addresses("198.51.100.7", "fd00::1"),
         addresses("198.51.100.7", "fd00::1"))),
        (None, "", addresses("127.0.0.1", "10.0.0.1", "::1"), NodeView("n1", "", (), addresses("10.0.0.1"))),
        (None, "::", None, NodeView("n1")),
    ],
)  # fmt: skip
def test_the_node(node: Node | None, bind: str, known: Any, expected: NodeView) -> None:
    found = node_view(node, "n1", bind_address=bind, addresses=known)
    assert replace(found, addresses=()) == replace(expected, addresses=())
    assert set(found.addresses) == set(expected.addresses)


@pytest.mark.parametrize(
    ("text", "node", "local_pods", "node_ports"),
    [
        ("", N1, None, ("primary",)),
        ("clusterCIDR: '10.0.0.0/8,fd00::/64'", N1, pods("10.0.0.0/8", "fd00::/64"), ("primary",)),
        ("detectLocalMode: NodeCIDR", N1, pods("10.244.1.0/24", "fd00:1::/80"), ("primary",)),
        ("detectLocalMode: NodeCIDR", None, None, ("primary",)),
        ("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: b}", N1,
         LocalPods(bridge="b"), ("primary",)),
        ("detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: v}", N1,
         LocalPods(interface_prefix="v"), ("primary",)),
        ("mode: iptables", N1, None, ()),
        ("mode: iptables\nnodePortAddresses: [primary]", N1, None, ("primary",)),
        ("nodePortAddresses: [10.0.0.0/8]", N1, None, (parsed_network("10.0.0.0/8"),)),
    ],
)  # fmt: skip
def test_the_configuration_of_the_plan(text: str, node: Node | None, local_pods: Any, node_ports: Any) -> None:
    found = proxy_config(read(text), node, ("10.96.0.0/16", "fd00:96::/112"))
    assert (found.local_pods, found.node_port_addresses) == (local_pods, node_ports)
    assert list(map(str, found.service_cidrs)) == ["10.96.0.0/16", "fd00:96::/112"]


def test_the_rest_of_the_configuration_of_the_plan() -> None:
    found = proxy_config(read("nftables: {masqueradeAll: true}\niptables: {localhostNodePorts: false}"), None)
    assert (found.mode, found.masquerade_all, found.localhost_node_ports, found.node_hints) == (
        NFTABLES,
        True,
        False,
        True,
    )
    assert not proxy_config(read("featureGates: {PreferSameTrafficDistribution: false}"), None).node_hints
    with pytest.raises(InputError, match="mode ipvs is not built yet"):
        proxy_config(read("mode: ipvs"), None)


@given(st.integers(min_value=-(10**17), max_value=10**17))
def test_durations_come_back(nanoseconds: int) -> None:
    duration = nanoseconds / 1e9
    assert seconds(written(duration)) == pytest.approx(duration, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0s"), ("24h", "24h0m0s"), ("90s", "1m30s"), ("1.5h", "1h30m0s"), ("250ms", "250ms"),
        ("-1500us", "-1.5ms"), (".5s", "500ms"), ("7ns", "7ns"),
    ],
)  # fmt: skip
def test_durations_as_go_writes_them(text: str, expected: str) -> None:
    assert written(seconds(text)) == expected


FIELDS = st.sampled_from(["iptables", "mode", "logging", "vmodule", "syncPeriod", "clusterCIDR", "kind", "x"])
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)


@given(st.recursive(SCALARS, lambda part: st.lists(part) | st.dictionaries(FIELDS, part)))
def test_any_document_is_read_or_refused(document: object) -> None:
    for each in (document, {**HEAD, **document} if isinstance(document, dict) else document):
        settings, _ = decoded(each)
        problems(settings)
