"""KubeProxyConfiguration files: what they say, and what is none."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from settings_text import ADDRESSES, BIT, HEAD, read, said

from kdns.errors import InputError, SettingsError
from kdns.proxy.settings.document import decoded, encoded
from kdns.proxy.settings.io.files import load_settings, parse_settings, write_settings
from kdns.proxy.settings.settings import Settings
from kdns.proxy.settings.validation import problems
from kdns.proxy.userspace.mode import UserspaceSettings
from kdns.proxy.xtables.settings import IptablesSettings


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("", "mode", "nftables"),
        ("mode: ''", "mode", "nftables"),
        ("mode: iptables", "mode", "iptables"),
        ("", "bindAddress", "0.0.0.0"),
        ("", "healthzBindAddress", "0.0.0.0:10256"),
        ("", "metricsBindAddress", "127.0.0.1:10249"),
        ("bindAddress: '::'", "healthzBindAddress", "[::]:10256"),
        ("bindAddress: '::'", "metricsBindAddress", "[::1]:10249"),
        ("bindAddress: fd00::1\nmetricsBindAddress: 10.0.0.1", "metricsBindAddress", "10.0.0.1:10249"),
        ("healthzBindAddress: 'fd00::1'", "healthzBindAddress", "[fd00::1]:10256"),
        ("healthzBindAddress: 10.0.0.1:80", "healthzBindAddress", "10.0.0.1:80"),
        ("", "clientConnection.qps", 5.0),
        ("clientConnection: {qps: 0, burst: 0, contentType: ''}", "clientConnection.burst", 10),
        ("clientConnection: {qps: 7}", "clientConnection.qps", 7),
        ("", "iptables.masqueradeBit", 14),
        ("iptables: {masqueradeBit: 0}", "iptables.masqueradeBit", 0),
        ("iptables: {masqueradeBit: null}", "iptables.masqueradeBit", 14),
        ("iptables: {localhostNodePorts: false}", "iptables.localhostNodePorts", False),
        ("iptables: {minSyncPeriod: 0s}", "iptables.minSyncPeriod", "1s"),
        ("iptables: {syncPeriod: 1m30s}", "iptables.syncPeriod", "1m30s"),
        ("ipvs: {syncPeriod: 0s}", "ipvs.syncPeriod", "30s"),
        ("", "ipvs.minSyncPeriod", "0s"),
        ("ipvs: {strictARP: true}", "ipvs.strictARP", True),
        ("ipvs: {excludeCIDRs: [10.0.0.0/8]}", "ipvs.excludeCIDRs", ["10.0.0.0/8"]),
        ("", "nftables.masqueradeBit", 14),
        ("nftables: {syncPeriod: 0s}", "nftables.syncPeriod", "30s"),
        ("", "nftables.minSyncPeriod", "1s"),
        ("", "conntrack.maxPerCore", 32768),
        ("conntrack: {maxPerCore: 0}", "conntrack.maxPerCore", 0),
        ("", "conntrack.min", 131072),
        ("", "conntrack.tcpEstablishedTimeout", "24h0m0s"),
        ("conntrack: {tcpEstablishedTimeout: 0s}", "conntrack.tcpEstablishedTimeout", "0s"),
        ("conntrack: {tcpCloseWaitTimeout: null}", "conntrack.tcpCloseWaitTimeout", "1h0m0s"),
        ("configSyncPeriod: 0s", "configSyncPeriod", "15m0s"),
        ("udpIdleTimeout: 0s", "udpIdleTimeout", "250ms"),
        ("", "oomScoreAdj", -999),
        ("oomScoreAdj: 0", "oomScoreAdj", 0),
        ("detectLocalMode: ''", "detectLocalMode", "ClusterCIDR"),
        ("detectLocal: {interfaceNamePrefix: veth}", "detectLocal.interfaceNamePrefix", "veth"),
        ("nodePortAddresses: null", "nodePortAddresses", []),
        ("nodePortAddresses: [primary]", "nodePortAddresses", ["primary"]),
        ("protectedPorts: [2222, '8.8.8.8:53']", "protectedPorts", ["2222", "8.8.8.8:53"]),
        ("showHiddenMetricsForVersion: '1.35'", "showHiddenMetricsForVersion", "1.35"),
        ("winkernel: {enableDSR: true}", "winkernel.enableDSR", True),
        ("winkernel: {networkName: Pods}", "winkernel.networkName", "Pods"),
        ("winkernel: {forwardHealthCheckVip: true, rootHnsEndpointName: gw}", "winkernel.rootHnsEndpointName", "gw"),
    ],
)  # fmt: skip
def test_what_a_file_says(text: str, path: str, value: object) -> None:
    part: Any = encoded(read(text))
    for name in path.split("."):
        part = part[name]
    assert part == value
    assert said(read(text)) == []


@pytest.mark.parametrize(
    ("field", "empty", "refused"),
    [
        ("logging.flushFrequency", ["0s", "5s", 0, 5_000_000_000], ["2s", 2]),
        ("logging.vmodule", [None, []], [[{"filePattern": "a"}], "a"]),
        ("logging.options", [{}, {"text": {"splitStream": False}, "json": {"infoBufferSize": "0"}}],
         [{"text": {"splitStream": True}}, {"json": {"infoBufferSize": "4Mi"}}]),
        ("windowsRunAsService", [False, None], [True, 7]),
    ],
)  # fmt: skip
def test_fields_of_kube_proxy_that_kdns_does_not_have(field: str, empty: list[object], refused: list[object]) -> None:
    """A configuration that kube-proxy or kubeadm has written has them with their defaults."""
    *section, name = field.split(".")
    for values, mistakes in ((empty, []), (refused, [f"{field}: not supported, see docs/proxy-config.md"])):
        for value in values:
            part = {name: value}
            found = decoded({**HEAD, **({section[0]: part} if section else part)})
            assert (found[0], [*map(str, found[1])]) == (Settings(), mistakes)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("mode: 7", []),
        ("mode: true", ["mode: expected text, got true"]),
        ("oomScoreAdj: '1'", ['oomScoreAdj: expected a whole number, got "1"']),
        ("oomScoreAdj: 1.5", ["oomScoreAdj: expected a whole number, got 1.5"]),
        ("oomScoreAdj: 2147483648", ["oomScoreAdj: expected a number of 32 bits, got 2147483648"]),
        ("bindAddressHardFail: 1", ["bindAddressHardFail: expected true or false, got 1"]),
        ("clientConnection: {qps: fast}", ['clientConnection.qps: expected a number, got "fast"']),
        ("iptables: []", ["iptables: expected an object, got a list"]),
        ("nodePortAddresses: primary", ['nodePortAddresses: expected a list, got "primary"']),
        ("nodePortAddresses: [{}]", ["nodePortAddresses[0]: expected text, got an object"]),
        ("configSyncPeriod: 15", ["configSyncPeriod: expected a duration such as 30s or 1h30m, got 15"]),
        ("configSyncPeriod: '15'", [
            'configSyncPeriod: time: missing unit in duration "15"; expected a duration such as 30s or 1h30m',
        ]),
        ("featureGates: {A: 1, B: true, C: x}", [
            "featureGates.A: expected true or false, got 1", 'featureGates.C: expected true or false, got "x"',
        ]),
        ("featureGates: [A]", ["featureGates: expected names with true or false, got a list"]),
        ("winkernel: {enableDsr: true, sourceVip: 1.5}", ["winkernel.sourceVip: expected text, got 1.5"]),
        ("kind: Config", ["kind: expected KubeProxyConfiguration, got 'Config'"]),
        ("apiVersion: kubeproxy.config.k8s.io/v1\nnodePortAddresses: [1, [], true]\nmod: x", [
            "apiVersion: expected kubeproxy.config.k8s.io/v1alpha1, got 'kubeproxy.config.k8s.io/v1'",
            "nodePortAddresses[1]: expected text, got a list",
            "nodePortAddresses[2]: expected text, got true",
        ]),
        ("apiVersion: ''\nkind: ''", [
            "apiVersion: expected kubeproxy.config.k8s.io/v1alpha1, it is missing",
            "kind: expected KubeProxyConfiguration, it is missing",
        ]),
    ],
)  # fmt: skip
def test_what_a_file_cannot_say(text: str, wrong: list[str]) -> None:
    assert [str(problem) for problem in decoded({**HEAD, **yaml.safe_load(text)})[1] if not problem.is_ignored] == wrong


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bindAdress: 0.0.0.0", ["bindAdress: {}; did you mean bindAddress?"]),
        ("clusterCidr: 10.0.0.0/8", ["clusterCidr: {}; did you mean clusterCIDR?"]),
        ("iptables: {zzz: 1, syncperiod: 1s}", [
            "iptables.zzz: {}", "iptables.syncperiod: {}; did you mean syncPeriod?",
        ]),
        ("winkernel: {enableDsr: true}", ["winkernel.enableDsr: {}; did you mean enableDSR?"]),
        ("conntrack: {max: 7}\nresourceContainer: /kube-proxy", [
            "conntrack.max: is ignored, kube-proxy has removed it; maxPerCore and min set the limit",
            "resourceContainer: is ignored, kube-proxy has removed it; containers are the kubelet's",
        ]),
    ],
)  # fmt: skip
def test_fields_that_are_ignored(text: str, says: list[str]) -> None:
    """As kube-proxy does after a strict reading failed (loadConfig of cmd/kube-proxy/app/options.go)."""
    settings, ignored = decoded({**HEAD, **yaml.safe_load(text)})
    assert (settings.conntrack, {problem.is_ignored for problem in ignored}) == (Settings().conntrack, {True})
    assert [str(problem) for problem in ignored] == [say.format("is ignored, there is no such field") for say in says]


def test_a_file_that_kube_proxy_takes_with_a_warning_is_taken_with_a_warning(tmp_path: Path) -> None:
    path, warnings = tmp_path / "config.yaml", list[str]()
    path.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
        "clusterCIDR: 10.0.0.0/16\nmode: iptables\nclusterCIDR: 10.0.0.0/8\nnodePortAddresses: [primary]\n"
        "conntrack:\n  max: 7\n  min: 8\n  min: 9\n---\n: [\n"
    )
    settings = load_settings(path, warnings.append)
    assert (settings.mode, settings.cluster_cidr, settings.conntrack.min) == ("iptables", "10.0.0.0/8", 9)
    assert [warning.removeprefix(f"{path}:").partition(";")[0] for warning in warnings] == [
        "5: clusterCIDR: duplicate key",
        "8: conntrack.max: is ignored, kube-proxy has removed it",
        "10: conntrack.min: duplicate key",
        "12: only the first document counts for KubeProxyConfiguration, as in kube-proxy",
    ]


def test_everything_that_is_wrong_is_told_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "# ours\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
        "iptables:\n  masqueradeBit: 40\noomScoreAdj: 5000\nwinkernel:\n  enableDSR: true\n  sourceVip: pods\n"
    )
    with pytest.raises(SettingsError) as caught:
        load_settings(path, pytest.fail)
    assert str(caught.value).splitlines() == [
        f"{path}:5: iptables.masqueradeBit: Invalid value: 40: {BIT}",
        f"{path}:6: oomScoreAdj: Invalid value: 5000: must be within the range [-1000, 1000]",
        f'{path}:9: winkernel.sourceVip: Invalid value: "pods": must be an IPv4 address',
    ]


def test_a_type_hides_no_value_and_yaml_hides_neither(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
        "nftables: {syncPeriod: 1, minSyncPeriod: 60s}\nmode: nftables\nmode: nftables\nipvs:\n  sched: rr\n"
        "nodePortAddresses:\n- 10.0.0.0/8\n- 10.0.0.1\nconntrack: {min: -1}\n---\n- 1\n"
    )
    with pytest.raises(SettingsError) as caught:
        load_settings(path, pytest.fail)
    assert str(caught.value).splitlines() == [
        f"{path}:3: nftables.syncPeriod: expected a duration such as 30s or 1h30m, got 1",
        f'{path}:10: nodePortAddresses[1]: Invalid value: "10.0.0.1": {ADDRESSES}',
        f"{path}:11: conntrack.min: Invalid value: -1: must be greater than or equal to 0",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "x: expected an object of kind KubeProxyConfiguration, the file has none"),
        ("a: 1\n---\nb: 1\n", "x:1: apiVersion: expected kubeproxy.config.k8s.io/v1alpha1, it is missing"),
        ("a: [", "x:1: not YAML"),
    ],
)
def test_what_is_no_configuration_file(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        parse_settings("x", text, pytest.fail)
    with pytest.raises(SettingsError, match="x:1: expected an object of kind KubeProxyConfiguration"):
        parse_settings("x", "- 1\n", pytest.fail)


def test_a_written_file_says_the_same(tmp_path: Path) -> None:
    settings = Settings(cluster_cidr="10.0.0.0/8", node_port_addresses=("primary",), oom_score_adj=0)
    settings = settings.with_section(IptablesSettings(masquerade_bit=0)).with_section(UserspaceSettings(port_range="7"))
    write_settings(tmp_path / "config.yaml", settings)
    assert load_settings(tmp_path / "config.yaml", pytest.fail) == settings
    assert decoded(encoded(Settings())) == (Settings(), [])
    with pytest.raises(InputError, match="cannot be written"):
        write_settings(tmp_path / "no" / "such", settings)


FIELDS = st.sampled_from(["iptables", "mode", "logging", "vmodule", "syncPeriod", "clusterCIDR", "kind", "x"])
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)


@given(st.recursive(SCALARS, lambda part: st.lists(part) | st.dictionaries(FIELDS, part)))
def test_any_document_is_read_or_refused(document: object) -> None:
    for each in (document, {**HEAD, **document} if isinstance(document, dict) else document):
        problems(decoded(each)[0])
