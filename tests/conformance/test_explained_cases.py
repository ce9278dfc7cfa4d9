"""What `kdns explain` says of the recorded DNS cases: the recorded verdict, and causes that are true of the objects."""

import re
from operator import itemgetter
from typing import Any

from dns_harness import directive_of, server_of, state_of
from recorded_cases import each_case, recorded
from test_dns_cases import FIXTURE, behind

from kdns.dns.types import type_number
from kdns.explain.explain import explained

RECORDED = recorded("dns-cases.json")
CASES = [case for case in RECORDED["cases"] if not {"k8s_external", "autopath", "api_state"} & case.keys()]
SERVICE = re.compile(r"Service (\S+)/(\S+?)[,:]? ")
NO_SERVICE = re.compile(r'no Service "(\S+)" in "(\S+)"')
NO_NAMESPACE = re.compile(r'no Namespace "(\S+)"')


@each_case(CASES, itemgetter("id"))
async def test_explained_case(name: str, case: dict[str, Any]) -> None:
    directive = directive_of(case["corefile_stanza"])
    objects = [obj for obj in RECORDED["objects"] if obj["metadata"]["annotations"][FIXTURE] == case["fixture"]]
    state = state_of(objects, labels=directive.labels, namespace_labels=directive.namespace_labels, synced=True)
    server = server_of(state, directive, own=case.get("local_ips", []), behind=behind(case))
    found = await explained(server, case["qname"], type_number(case["qtype"]))
    has_records = any(line.split()[3] in {case["qtype"], "SRV", "A"} for line in case["answer"])
    verdict = case["rcode"] if case["rcode"] != "NOERROR" or has_records else "NODATA"
    if found.directive == "kubernetes":
        assert found.verdict in {verdict, case["rcode"]}, name
        assert len(found.records) == len(case["answer"]), name
    if found.directive == "kubernetes" and not found.is_answered:
        assert found.causes, name
    imports = {(obj.key) for obj in state.service_imports.values()}
    for text in (cause.text for cause in found.causes):
        for namespace, service in SERVICE.findall(text):
            assert (namespace, service) in state.services or (namespace, service) in imports, f"{name}: {text}"
        for service, namespace in NO_SERVICE.findall(text):
            assert (namespace, service) not in state.services, f"{name}: {text}"
        for namespace in NO_NAMESPACE.findall(text):
            assert ("", namespace) not in state.namespaces, f"{name}: {text}"
