"""kube-proxy's flags: what they say, alone and beside a file, and every way in which they can be wrong."""

from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner
from settings_text import BIT, HEAD, POSITIVE, read, said

from kdns.cli.commands.proxy import flag_texts, kube_proxy_flags
from kdns.cli.main import main
from kdns.errors import InputError, SettingsError
from kdns.proxy.settings.flags import BY_NAME, FLAGS, UNSUPPORTED, flag_values, settings_from_flags
from kdns.proxy.settings.io.files import settings_of
from kdns.proxy.settings.settings import Settings


def from_flags(line: str) -> Settings:
    return settings_from_flags(flag_values(dict(word.removeprefix("--").split("=", 1) for word in line.split())))


KERNELSPACE = (
    "mode: kernelspace\nwinkernel: {networkName: Pods, sourceVip: 10.1.0.9, enableDSR: true}\n"
    "iptables: {masqueradeAll: true}"
)


def test_flags_and_files_have_the_same_defaults() -> None:
    assert from_flags("") == Settings() == read("")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--proxy-mode=ipvs --ipvs-sync-period=5s --ipvs-min-sync-period=1s --iptables-sync-period=9s",
         "mode: ipvs\nipvs: {syncPeriod: 5s, minSyncPeriod: 1s}\niptables: {syncPeriod: 9s}"),
        ("--proxy-mode=nftables --iptables-sync-period=5s --ipvs-sync-period=9s",
         "nftables: {syncPeriod: 5s}\nipvs: {syncPeriod: 9s}"),
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
        ("--feature-gates=AllowServiceExternalIPs=false,ComponentFlagz=true",
         "featureGates: {AllowServiceExternalIPs: false, ComponentFlagz: true}"),
        ("--protected-ports=2222,8.8.8.8:53", "protectedPorts: [2222, '8.8.8.8:53']"),
        ("--kube-api-qps=9.5 --kube-api-burst=20 --kubeconfig=/k",
         "clientConnection: {qps: 9.5, burst: 20, kubeconfig: /k}"),
        ("--conntrack-tcp-timeout-established=0s --conntrack-max-per-core=0 --conntrack-tcp-be-liberal=true",
         "conntrack: {tcpEstablishedTimeout: 0s, maxPerCore: 0, tcpBeLiberal: true}"),
        ("--conntrack-udp-timeout=10s --conntrack-udp-timeout-stream=1m",
         "conntrack: {udpTimeout: 10s, udpStreamTimeout: 1m}"),
        ("--hostname-override=Node-1", "hostnameOverride: node-1"),
        ("--healthz-bind-address=10.0.0.1", "healthzBindAddress: 10.0.0.1:10256"),
        ("--healthz-bind-address=::1 --bind-address=::",
         "bindAddress: '::'\nhealthzBindAddress: '[::1]:10256'\nmetricsBindAddress: 127.0.0.1"),
        ("--oom-score-adj=0 --profiling=true --bind-address-hard-fail=1",
         "oomScoreAdj: 0\nenableProfiling: true\nbindAddressHardFail: true"),
        ("--proxy-mode=kernelspace --network-name=Pods --source-vip=10.1.0.9 --enable-dsr=true --masquerade-all=true",
         KERNELSPACE),
        ("--forward-healthcheck-vip=true --root-hnsendpoint-name=gw",
         "winkernel: {forwardHealthCheckVip: true, rootHnsEndpointName: gw}"),
        ("--ipvs-scheduler=lc --ipvs-strict-arp=true --ipvs-exclude-cidrs=10.0.0.0/8 --ipvs-tcpfin-timeout=1s",
         "ipvs: {scheduler: lc, strictARP: true, excludeCIDRs: [10.0.0.0/8], tcpFinTimeout: 1s}"),
        ("--v=4 --logging-format=json", "logging: {verbosity: 4, format: json}"),
        ("--udp-timeout=1s --proxy-port-range=300-400", "udpIdleTimeout: 1s\nportRange: 300-400"),
        ("--proxy-mode= --detect-local-mode=", ""),
    ],
)  # fmt: skip
def test_flags_say_what_files_say(line: str, text: str) -> None:
    assert from_flags(line) == read(text)


def test_flags_turn_servers_off() -> None:
    settings = from_flags("--healthz-bind-address= --metrics-bind-address=")
    assert (settings.healthz_bind_address, settings.metrics_bind_address, said(settings)) == ("", "", [])


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("oom-score-adj", "x", "expected a whole number of 32 bits"),
        ("conntrack-min", "2147483648", "expected a whole number of 32 bits"),
        ("kube-api-qps", "x", "expected a number"),
        ("profiling", "yes", "expected true or false"),
        ("config-sync-period", "5", 'time: missing unit in duration "5"'),
        ("config-sync-period", "5y", 'time: unknown unit "y" in duration "5y"'),
        ("config-sync-period", "", 'time: invalid duration ""'),
        ("feature-gates", "A", "missing bool value for A"),
        ("feature-gates", "A=maybe", "expected true or false"),
    ],
)
def test_flags_of_another_type(name: str, text: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        flag_values({name: text})
    assert str(caught.value) == f'invalid argument "{text}" for "--{name}" flag: {why}'


def test_all_that_is_wrong_is_told_of_flags_and_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'(?s)"x" for "--config-sync-period".*\n.*"y" for "--oom-score-adj"'):
        flag_values({"config-sync-period": "x", "oom-score-adj": "y"})
    (tmp_path / "c").write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: x\nlogging: {format: y}\n"
    )
    with pytest.raises(SettingsError) as caught:
        settings_of(flag_values({"config": str(tmp_path / "c"), "logging-format": "z"}), lambda _: None)
    assert [problem.partition("Invalid")[0] for problem in caught.value.problems] == [
        f"{tmp_path}/c:3: mode: ",
        f"{tmp_path}/c:4: logging.format: ",
        "--logging-format: ",
    ]


def test_what_is_wrong_with_a_flag_names_the_flag() -> None:
    flags = flag_values(
        {"source-vip": "pods", "iptables-masquerade-bit": "40", "iptables-sync-period": "-1s", "oom-score-adj": "3000"}
    )
    with pytest.raises(SettingsError) as caught:
        settings_of(flags, lambda _: None)
    assert sorted(caught.value.problems) == [
        f"--iptables-masquerade-bit: Invalid value: 40: {BIT}",
        f"--iptables-sync-period: Invalid value: -1s: {POSITIVE}",
        "--iptables-sync-period: Invalid value: 1s: must be greater than or equal to nftables.minSyncPeriod",
        "--oom-score-adj: Invalid value: 3000: must be within the range [-1000, 1000]",
        '--source-vip: Invalid value: "pods": must be an IPv4 address',
    ]
    with pytest.raises(InputError, match="empty hostname-override is invalid"):
        settings_of(flag_values({"hostname-override": " "}), pytest.fail)


def test_beside_a_file_few_flags_count(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**HEAD, "clusterCIDR": "10.0.0.0/8"}))
    texts = {"config": str(path), "hostname-override": "N1", "logging-format": "json"}
    ignored = {"cluster-cidr": "10.1.0.0/16", "healthz-bind-address": "127.0.0.1"}
    warnings: list[str] = []
    settings = settings_of(flag_values(texts | ignored), warnings.append)
    assert (settings.cluster_cidr, settings.node_name, settings.logging.format) == ("10.0.0.0/8", "n1", "json")
    assert settings.healthz_bind_address == "0.0.0.0:10256"
    assert warnings == ["with --config these do not count: --cluster-cidr, --healthz-bind-address"]


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_flags_of_kube_proxy_that_kdns_does_not_have(name: str) -> None:
    for line in ([f"--{name}"], [f"--{name}=0"]):
        done = CliRunner().invoke(main, ["proxy", *line])
        assert (done.exit_code, done.output) == (2, f"Error: --{name}: not supported, see docs/proxy-config.md\n")


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
    assert [flag.name for flag in FLAGS if f"--{flag.name} " not in shown] == []
    assert len(BY_NAME) == len(FLAGS)
