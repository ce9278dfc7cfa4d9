"""Values of the dataplane's settings: which are refused, and what is remarked."""

import pytest
from settings_text import ADDRESSES, BIT, POSITIVE, read, said

from kdns.proxy.settings.validation import remarks

NOT_NEGATIVE = "must be greater than or equal to 0"
CIDR = "must be a valid CIDR"
EITHER_MODE = (
    "node ports are at loopback addresses in mode iptables and userspace only. Consider using the node's addresses"
)
USERSPACE_MODE = "node ports are at loopback addresses in mode userspace only. Consider using the node's addresses"
PAIR = "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]"
BLOCK = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"
LOCAL_MODES = 'supported values: "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix", ""'
MODES = (
    "must be iptables, ipvs, kernelspace, nftables, userspace or blank"
    " (blank means the best-available proxy [currently nftables])"
)
NO_CHECKS = "has no effect without winkernel.forwardHealthCheckVip"
JSON = "kdns reads and writes application/json"
PROTECTED = "must be [IP or CIDR:]PORT[/PROTOCOL] (e.g. 2222, 8.8.8.8:53 or [fde4:8dba:82e1::/48]:22/tcp)"
NO_GATE = "Forbidden: kdns has no such feature gate; it has "
NO_GATE += (
    "AllowAddressShadowing, AllowServiceExternalIPs, ComponentFlagz, ComponentStatusz, PreferSameTrafficDistribution"
)
MINOR = "must be omitted or have the value '1.35'. Only the previous minor version is allowed"


@pytest.mark.parametrize(
    ("text", "field", "shown", "reason"),
    [
        ("mode: kernel", "mode", '"kernel"', MODES),
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
        ("nodePortAddresses: [127.0.0.1/32, 10.20.30.40]", "nodePortAddresses[1]", '"10.20.30.40"', ADDRESSES),
        ("nodePortAddresses: ['2001:db8:xyz/64']", "nodePortAddresses[0]", '"2001:db8:xyz/64"', ADDRESSES),
        ("nodePortAddresses: [primary, Localhost]", "nodePortAddresses[1]", '"Localhost"', ADDRESSES),
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
        ("clientConnection: {contentType: text/plain}", "clientConnection.contentType", '"text/plain"', JSON),
        ("clientConnection: {acceptContentTypes: application/cbor}", "clientConnection.acceptContentTypes",
         '"application/cbor"', JSON),
        ("protectedPorts: [22, 8.8.8.8]", "protectedPorts[1]", '"8.8.8.8"', PROTECTED),
        ("protectedPorts: [0]", "protectedPorts[0]", '"0"', PROTECTED),
        ("protectedPorts: [65536]", "protectedPorts[0]", '"65536"', PROTECTED),
        ("protectedPorts: ['53/icmp']", "protectedPorts[0]", '"53/icmp"', PROTECTED),
        ("protectedPorts: ['2001:db8::1:53']", "protectedPorts[0]", '"2001:db8::1:53"', PROTECTED),
        ("protectedPorts: ['[10.0.0.0/8]:53']", "protectedPorts[0]", '"[10.0.0.0/8]:53"', PROTECTED),
    ],
)  # fmt: skip
def test_values_that_are_refused(text: str, field: str, shown: str, reason: str) -> None:
    assert said(read(text)) == [f"{field}: Invalid value: {shown}: {reason}"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mode: ipvs\nipvs: {syncPeriod: -1ms}", [
            f"ipvs.syncPeriod: Invalid value: -1ms: {POSITIVE}",
            "ipvs.syncPeriod: Invalid value: 0s: must be greater than or equal to ipvs.minSyncPeriod",
        ]),
        ("detectLocalMode: Guess", [f'detectLocalMode: Unsupported value: "Guess": {LOCAL_MODES}']),
        ("featureGates: {AllAlpha: false}", [f"featureGates.AllAlpha: {NO_GATE}"]),
        ("featureGates: {Zeta: true, PreferSameTrafficDistribution: true}", [f"featureGates.Zeta: {NO_GATE}"]),
        ("winkernel: {sourceVip: fd00::1}", ['winkernel.sourceVip: Invalid value: "fd00::1": must be an IPv4 address']),
        ("winkernel: {sourceVip: pods}", ['winkernel.sourceVip: Invalid value: "pods": must be an IPv4 address']),
        ("winkernel: {rootHnsEndpointName: cbr0}",
         [f'winkernel.rootHnsEndpointName: Invalid value: "cbr0": {NO_CHECKS}']),
        ("clusterCIDR: fd00:192:168:59::/64", []),
        ("clusterCIDR: 192.168.59.0/24,fd00:192:168::/64", []),
        ("detectLocalMode: NodeCIDR\nclusterCIDR: nonsense", []),
        ("mode: iptables\nipvs: {tcpTimeout: -1s}", []),
        ("mode: iptables\nnftables: {masqueradeBit: 99}", []),
        ("portRange: 300+1700", []),
        ("nodePortAddresses: [primary, localhost, 10.0.0.0/8, all]", []),
        ("portRange: '300'", []),
        ("featureGates: {AllowServiceExternalIPs: false, ComponentFlagz: true}", []),
        ("featureGates: {PreferSameTrafficDistribution: true}", []),
        ("clientConnection: {contentType: '', acceptContentTypes: 'application/cbor, application/json'}", []),
        ("protectedPorts: [22, 53/UDP, 8.8.8.8:53, '10.0.0.0/8:10250/tcp', '[2001:db8::/32]:22', '[::1]:22/sctp']", []),
        ("logging: {format: json, flushFrequency: 5s, verbosity: 2}", []),
    ],
)  # fmt: skip
def test_values_that_are_refused_in_other_words_and_values_that_are_fine(text: str, says: list[str]) -> None:
    assert said(read(text)) == says


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("clusterCIDR: 10.0.0.0/8", []),
        ("", ["clusterCIDR"]),
        ("nftables: {masqueradeAll: true}", []),
        ("detectLocalMode: NodeCIDR\nmode: iptables", ["nodePortAddresses"]),
        ("mode: kernelspace\nwinkernel: {enableDSR: true}", []),
        ("mode: kernelspace\nnodePortAddresses: [primary]", ["nodePortAddresses"]),
        ("mode: kernelspace\nnodePortAddresses: [localhost]", ["nodePortAddresses"]),
    ],
)  # fmt: skip
def test_what_is_remarked(text: str, fields: list[str]) -> None:
    assert [remark.field for remark in remarks(read(text))] == fields


@pytest.mark.parametrize(
    ("text", "item", "says"),
    [
        ("nodePortAddresses: [primary, localhost]", 1, f"localhost has no effect in mode nftables: {EITHER_MODE}"),
        ("nodePortAddresses: [127.0.0.0/8]", 0, f"127.0.0.0/8 has no effect in mode nftables: {EITHER_MODE}"),
        ("nodePortAddresses: [127.0.0.1/32, all]", 0, f"127.0.0.1/32 has no effect in mode nftables: {EITHER_MODE}"),
        ("nodePortAddresses: ['::1/128']", 0, f"::1/128 has no effect in mode nftables: {USERSPACE_MODE}"),
        ("mode: iptables\nnodePortAddresses: ['::1/128']", 0,
         f"::1/128 has no effect in mode iptables: {USERSPACE_MODE}"),
        ("mode: iptables\niptables: {localhostNodePorts: false}\nnodePortAddresses: [localhost]", 0,
         "localhost has no effect in mode iptables while iptables.localhostNodePorts is false"),
        ("mode: iptables\nnodePortAddresses: [localhost]", -1, ""),
        ("mode: userspace\nnodePortAddresses: [localhost, '::1/128']", -1, ""),
        ("nodePortAddresses: [all, 0.0.0.0/0, primary]", -1, ""),
    ],
)  # fmt: skip
def test_node_ports_at_loopback_addresses_are_remarked_where_a_mode_has_none(text: str, item: int, says: str) -> None:
    found = [str(remark) for remark in remarks(read(f"{text}\nclusterCIDR: 10.0.0.0/8"))]
    assert found == ([f"nodePortAddresses[{item}]: {says}"] if says else [])


def test_node_ports_at_loopback_addresses_in_mode_ipvs() -> None:
    found = [str(remark) for remark in remarks(read("mode: ipvs\nnodePortAddresses: [localhost]"))]
    assert f"nodePortAddresses[0]: localhost has no effect in mode ipvs: {EITHER_MODE}" in found
