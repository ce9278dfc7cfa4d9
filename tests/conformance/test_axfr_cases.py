"""The recorded transfers of `kubernetes`: a transfer has the records that queries are answered with."""

from typing import Any

import pytest
from dns_harness import directive_of, server_of, state_of
from recorded_cases import recorded
from zone_text import record_texts

from kdns.dns.names import labels_of
from kdns.dns.rrset import Rdata
from kdns.dns.types import SRV
from kdns.dns.zonefile import parse_record
from kdns.plugins.sources.kubernetes.plugin import Kubernetes

FIXTURE = "coredns-conformance/fixture"


def stanza(config: dict[str, Any]) -> str:
    lines = [f"namespaces {' '.join(config['namespaces'])}"] if config["namespaces"] else []
    lines += ["endpoint_pod_names"] if config["endpoint_pod_names"] else []
    lines += [f"multicluster {' '.join(config['multicluster'])}"] if config["multicluster"] else []
    return "\n".join((f"kubernetes {' '.join(config['zones'])} {{", *lines, "}"))


def kubernetes_of(case: dict[str, Any], content: dict[str, Any]) -> Kubernetes:
    objects = [obj for obj in content["objects"] if obj["metadata"]["annotations"][FIXTURE] == case["fixture"]]
    directive = directive_of(stanza(case["plugin_config"]))
    server = server_of(state_of(objects), directive, own=case["local_ips"])
    (plugin,) = [plugin for plugin in server.blocks[0].chain.plugins if isinstance(plugin, Kubernetes)]
    return plugin


def transferred(plugin: Kubernetes, zone: str) -> list[str]:
    transfer = plugin.transfer(zone, None)
    assert transfer
    return [line for rrset in transfer.records for line in record_texts(rrset)]


def comparable(line: str) -> str:
    """A line without what is right in kdns and wrong in CoreDNS, as its own answers to queries show.

    Endpoints of other clusters stand below the label of their cluster (KEP-1645), glue has the TTL of its Service, and
    the weight of an SRV record depends on all of its set.
    """
    owner, ttl, rclass, rtype, *rdata = line.replace(".cluster1.", ".").split(" ")
    return " ".join((owner, "5" if ttl == "0" else ttl, rclass, rtype, *(rdata[2:] if rtype == "SRV" else rdata)))


def test_recorded_transfers() -> None:
    """Nothing that is recorded is missing; what there is more, queries are answered with too."""
    content = recorded("dns-cases.json")
    passed = 0
    for case in content["axfr_cases"]:
        plugin = kubernetes_of(case, content)
        recorded_lines = {comparable("".join(record_texts(parse_record(line)))) for line in case["records"]}
        got = set(map(comparable, transferred(plugin, case["zone"])))
        missing = {line for line in recorded_lines - got if " SOA " not in line}
        assert missing == set(), case["id"]
        passed += 1
    print(f"dns-cases.json, axfr_cases: {passed} passed")


@pytest.mark.parametrize("zones", ["cluster.local in-addr.arpa ip6.arpa", "cluster.local clusterset.local"])
def test_a_transfer_has_what_queries_are_answered_with(zones: str) -> None:
    content = recorded("dns-cases.json")
    options = "multicluster clusterset.local\n" if "clusterset" in zones else ""
    directive = directive_of(f"kubernetes {zones} {{\npods verified\nzonal\n{options}}}")
    server = server_of(state_of(content["objects"]), directive, own=("10.0.0.10",))
    (plugin,) = [plugin for plugin in server.blocks[0].chain.plugins if isinstance(plugin, Kubernetes)]
    for zone in plugin.transfer_zones():
        transfer = plugin.transfer(zone, None)
        assert transfer
        sets: dict[tuple[str, int], set[Rdata]] = {}
        for rrset in transfer.records:
            sets.setdefault((rrset.owner, rrset.rtype), set()).update(rrset.rdata)
        assert len(sets) > 2
        for (owner, rtype), rdata in sets.items():
            found = plugin.zones.lookup(labels_of(owner), rtype)
            assert found
            assert found.answer, (owner, rtype)
            assert set(found.answer[0].rdata) == rdata, (owner, rtype)


def test_the_srv_records_of_unnamed_ports_are_in_no_transfer() -> None:
    objects = [
        obj for obj in recorded("dns-observed-coredns.json")["objects"] if obj["kind"] in {"Namespace", "Service"}
    ]
    server = server_of(state_of(objects), directive_of("kubernetes cluster.local"), own=("10.0.0.10",))
    (plugin,) = [plugin for plugin in server.blocks[0].chain.plugins if isinstance(plugin, Kubernetes)]
    transfer = plugin.transfer("cluster.local.", None)
    assert transfer
    owners = {rrset.owner for rrset in transfer.records if rrset.rtype == SRV}
    name = "unnamed.testns.svc.cluster.local."
    found = plugin.zones.lookup(labels_of(f"_._tcp.{name}"), SRV)
    assert found
    assert found.answer
    assert {owner for owner in owners if owner.endswith(name)} == {name}
