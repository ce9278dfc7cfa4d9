"""A node-local cache: its rules as text, and the variables of its Corefile."""

import pytest

from kdns.errors import InputError
from kdns.node_local.rules import ruleset
from kdns.node_local.settings import NodeLocal, service_host

RULES = """\
table inet kdns-node-local
delete table inet kdns-node-local
table inet kdns-node-local {
  comment "kdns: the node-local DNS cache is not tracked"
  chain prerouting {
    type filter hook prerouting priority -300; policy accept;
    ip daddr { 169.254.20.10, 10.96.0.10 } udp dport { 53 } notrack
    ip daddr { 169.254.20.10, 10.96.0.10 } tcp dport { 53, 8080 } notrack
    ip6 daddr { fd00::a } udp dport { 53 } notrack
    ip6 daddr { fd00::a } tcp dport { 53, 8080 } notrack
  }
  chain output {
    type filter hook output priority -300; policy accept;
    ip daddr { 169.254.20.10, 10.96.0.10 } udp dport { 53 } notrack
    ip saddr { 169.254.20.10, 10.96.0.10 } udp sport { 53 } notrack
    ip daddr { 169.254.20.10, 10.96.0.10 } tcp dport { 53, 8080 } notrack
    ip saddr { 169.254.20.10, 10.96.0.10 } tcp sport { 53, 8080 } notrack
    ip6 daddr { fd00::a } udp dport { 53 } notrack
    ip6 saddr { fd00::a } udp sport { 53 } notrack
    ip6 daddr { fd00::a } tcp dport { 53, 8080 } notrack
    ip6 saddr { fd00::a } tcp sport { 53, 8080 } notrack
  }
}"""


def test_queries_to_the_cache_and_its_answers_are_not_tracked() -> None:
    assert ruleset(("169.254.20.10", "10.96.0.10", "fd00::a"), (53,)) == RULES


def test_a_family_without_address_has_no_rules() -> None:
    assert "ip6" not in ruleset(("169.254.20.10",), (53,))


def test_the_variables_of_a_corefile_are_filled_in() -> None:
    local = NodeLocal(("169.254.20.10",), cluster_dns="10.96.0.99")
    text = "forward . __PILLAR__CLUSTER__DNS__\nforward . __PILLAR__UPSTREAM__SERVERS__\n"
    assert local.with_variables(text) == "forward . 10.96.0.99\nforward . /etc/resolv.conf\n"


def test_a_service_that_is_not_there_is_told() -> None:
    with pytest.raises(InputError, match=r"environment no UP_STREAM_SERVICE_HOST; expected .* Service up-stream there"):
        NodeLocal(("169.254.20.10",), upstream_service="up-stream").with_variables("forward . __PILLAR__CLUSTER__DNS__")
    assert NodeLocal(("169.254.20.10",)).with_variables("whoami") == "whoami"


@pytest.mark.parametrize(
    ("service", "found"), [("kube-dns-upstream", "10.96.0.99"), ("KUBE-dns-Upstream", "10.96.0.99"), ("other", "")]
)
def test_the_service_is_a_variable_of_the_kubelet(service: str, found: str) -> None:
    assert service_host(service, {"KUBE_DNS_UPSTREAM_SERVICE_HOST": "10.96.0.99"}) == found
