"""The recorded runs of the Endpoints controller in a whole server: controllers on its API, the result over HTTP."""

from __future__ import annotations

import asyncio
from operator import itemgetter

from recorded_cases import each_case, recorded
from rest_harness import path_of, server
from test_endpoints_controllers import plain, pod

from kdns.controlplane.apimachinery.kinds import ENDPOINTS, POD, SERVICE, Json
from kdns.controlplane.controllers.io.controller_manager import ControllerManager
from kdns.controlplane.endpoints.endpoints_controller import EndpointsController
from kdns.controlplane.endpoints.service_index import ServiceIndex

CASES = recorded("endpoints-controller-cases.json")["cases"]
OURS = frozenset({"name", "namespace", "creationTimestamp", "managedFields"})
DEADLINE_S = 60.0
TARGET = 8099
"""A target port for the recorded Services that have none: a server stores Services with defaults."""

NO_PATH = {8: "two ports without names, which a server takes neither in a Service nor in Endpoints"}
"""Cases that cannot come about in a server."""


async def made(case: Json) -> Json:
    """The Endpoints that the controller leaves behind the case's Service."""
    service = stored(case["service"])
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    pods = case["pods"] if "pods" in case else all_pods(case)
    async with server("10.96.0.0/16", namespaces=(namespace,)) as client:
        for kind, objects in ((POD, pods or []), (SERVICE, [service])):
            for each in objects:
                client.plant(kind, {**each, "metadata": {**each["metadata"], "namespace": namespace}})
        if not case.get("create"):
            current = case.get("current") or {"metadata": {"annotations": case["currentAnnotations"]}}
            meta = {**current["metadata"], "name": name, "namespace": namespace}
            client.plant(ENDPOINTS, {**current, "metadata": meta})
        controllers = ControllerManager(client.api, lambda: (EndpointsController(ServiceIndex()),))
        controllers.start()
        async with asyncio.timeout(DEADLINE_S):
            await controllers.idle.wait()
        controllers.close()
        code, found = await client("GET", path_of(ENDPOINTS, namespace, name))
    assert code == 200, found
    assert isinstance(found, dict)
    return found


def stored(service: Json) -> Json:
    """The Service as a server has it: a target port on each port, and a selector that says something.

    The recorded empty ones, which select all, do not outlive storage: there they are none at all.
    """
    spec = service["spec"]
    ports = [{**each, "targetPort": each.get("targetPort") or TARGET} for each in spec.get("ports") or []]
    return {**service, "spec": {**spec, "selector": spec.get("selector") or {"foo": "bar"}, "ports": ports}}


def numbered(endpoints: Json | None, service: Json) -> Json:
    """The recorded Endpoints with that target port where the Service had none."""
    none = any(not each.get("targetPort") for each in service["spec"].get("ports") or [])
    subsets = [
        {**each, "ports": [{**port, "port": port.get("port") or TARGET} for port in each.get("ports") or [{}]]}
        for each in (endpoints or {}).get("subsets") or []
    ]
    return {**(endpoints or {}), "subsets": subsets} if none else endpoints or {}


def all_pods(case: Json) -> list[Json]:
    """The Pods of a case that only counts them."""
    return [pod(number, ready=number < case["numReadyPods"]) for number in range(case["numPods"])]


def bare(endpoints: Json | None) -> object:
    """Without what the server itself writes."""
    found = endpoints or {}
    meta = {key: value for key, value in found.get("metadata", {}).items() if key not in OURS}
    return plain({**{key: value for key, value in found.items() if key != "kind"}, "metadata": meta})


def sizes(endpoints: Json) -> list[Json]:
    """How many addresses each subset has."""
    counted = (("ready", "addresses"), ("notReady", "notReadyAddresses"))
    return [{what: len(each.get(field) or []) for what, field in counted} for each in endpoints.get("subsets") or []]


@each_case([case for index, case in enumerate(CASES) if index not in NO_PATH], itemgetter("upstreamTest"))
async def test_recorded_case_over_http(name: str, case: Json) -> None:
    found = await made(case)
    if case.get("compact"):
        notes = {key: value for key, value in found["metadata"].get("annotations", {}).items() if "trigger" not in key}
        got: object = (notes, sizes(found))
        rows = [{key: row[key] for key in ("ready", "notReady")} for row in case["expectSubsetSizes"]]
        wanted: object = (case["expectAnnotations"], rows)
    else:
        unchanged = case["noop"] and not case["create"]
        got, wanted = bare(found), bare(case["current"] if unchanged else numbered(case["expect"], case["service"]))
    assert got == wanted, name


async def test_why_a_case_has_no_path() -> None:
    for index in NO_PATH:
        service = stored(CASES[index]["service"])
        async with server("10.96.0.0/16", namespaces=(service["metadata"]["namespace"],)) as client:
            code, refused = await client("POST", path_of(SERVICE, service["metadata"]["namespace"]), service)
        assert (code, refused["reason"]) == (422, "Invalid")
