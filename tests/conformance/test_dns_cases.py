"""The recorded DNS cases of CoreDNS's own tests, whole."""

from operator import itemgetter
from typing import Any

from configured import configured
from dns_chain import FakeWorld, only, read
from dns_harness import ZoneFile, difference, directive_of, server_of, state_of
from harness import reply_to
from recorded_cases import each_case, recorded

from kdns.answers.chain import Request
from kdns.cluster.objects import Pod, PodMeta, PodStatus
from kdns.cluster.state import State
from kdns.dns.message import query as make_query
from kdns.dns.types import type_number
from kdns.plugins.sources import k8s_external
from kdns.plugins.sources.k8s_external import ExternalConfig
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import Kubernetes

RECORDED = recorded("dns-cases.json")
FIXTURE = "coredns-conformance/fixture"


def behind(case: dict[str, Any]) -> tuple[ZoneFile, ...]:
    """The recorded neighbours of `kubernetes`: zone files after it, and what a forwarder would have found."""
    files = [ZoneFile(origin, text) for origin, text in case.get("zonefiles", {}).items()]
    files += [ZoneFile(origin, text, authority=False) for origin, text in case.get("upstream_zonefiles", {}).items()]
    upstream = case.get("upstream_answers")
    if upstream:
        files.append(ZoneFile("test.", "\n".join(upstream["rrs"]), truncated=upstream["truncated"]))
    return tuple(files)


def external_of(config: dict[str, Any]) -> ExternalConfig:
    """The `k8s_external` of a case, through a Corefile."""
    options = ["headless"] * config["headless"] + [f"ttl {config['ttl']}"]
    stanza = "\n".join([f"k8s_external {' '.join(config['zones'])} {{", *options, "}"])
    (server,) = configured(f".:53 {{\n{stanza}\n}}\n")
    return only(server, k8s_external.DIRECTIVE)


DEVIATIONS = {"coredns:TestPreserveCase/dnsPreserveCaseCases/2": "a target is spelled as the zone is configured"}


@each_case(RECORDED["cases"], itemgetter("id"), DEVIATIONS)
async def test_dns_case(name: str, case: dict[str, Any]) -> None:
    directive = directive_of(case["corefile_stanza"])
    state = state_of(
        [obj for obj in RECORDED["objects"] if obj["metadata"]["annotations"][FIXTURE] == case["fixture"]],
        labels=directive.labels,
        namespace_labels=directive.namespace_labels,
        synced=case.get("api_state") != "unsynced",
    )
    own = case.get("local_ips", [case["external_addr"]] if "external_addr" in case else [])
    external = external_of(case["k8s_external"]) if "k8s_external" in case else None
    server = server_of(state, directive, own=own, behind=behind(case), external=external, autopath="autopath" in case)
    query = {"name": case["qname"], "type": case["qtype"], "client": case.get("client_ip", "10.240.0.1"), "edns": {}}
    assert not difference(case, await reply_to(server, query)), name


def test_metadata_cases() -> None:
    """Two zones as the recorded test has them; its one pod is known where pods are verified."""
    pod = Pod(
        PodMeta("foo", "podns", labels={"app.kubernetes.io/name": "foo", "bar": "baz"}), PodStatus("", "10.240.0.1")
    )
    failures = []
    for case in RECORDED["metadata_cases"]:
        state = State()
        if case.get("pods") == "verified":
            state.upsert(pod)
        options = Options(zones=("cluster.local.", "clusterset.local."), multicluster=frozenset(("clusterset.local.",)))
        query = read(make_query(case["qname"], type_number(case["qtype"])))
        plugin = Kubernetes(state, options, FakeWorld(state=state))
        facts = plugin.metadata(Request(query, (case["client_ip"], 40212)))
        if facts != case["metadata"]:
            failures.append(f"{case['source']} {case['qname']}: {facts}, recorded {case['metadata']}")
    assert not failures, "\n".join(failures)
