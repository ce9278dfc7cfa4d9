"""Numbers of thousands of digits in clients' text, which Python refuses to read: 4xx, or no number, and never 500."""

from collections.abc import Callable

import pytest
from object_api import Api, pod, refused, service

from kdns.controlplane.apimachinery.annotations import annotated_number
from kdns.controlplane.apimachinery.kinds import DAEMON_SET, DEPLOYMENT, POD, SERVICE, Json
from kdns.controlplane.kinds.workloads import TEMPLATE_GENERATION
from kdns.controlplane.simulation.workloads.deployment import REVISION
from kdns.controlplane.storage.store import parsed_revision

LONG = "1" * 5000
LABELS = {"a": "b"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": pod()["spec"]}


def deployment(**rolling: str) -> Json:
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    spec = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE, "strategy": strategy}
    return {"metadata": {"name": "web"}, "spec": spec}


def asking(resource: str) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {resource: LONG}}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container]}}


def ranged() -> Json:
    obj = service()
    obj["spec"] |= {"type": "LoadBalancer", "loadBalancerSourceRanges": [f"10.0.0.0/{LONG}"]}
    return obj


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda api: api.watch(POD, "default", resource_version=LONG), 500),
        (lambda api: api.listed(POD, "default", resource_version=LONG), 400),
        (lambda api: api.create(DEPLOYMENT, deployment(maxSurge=f"{LONG}%")), 422),
        (lambda api: api.create(DEPLOYMENT, deployment(maxUnavailable=f"{LONG}%")), 422),
        (lambda api: api.create(SERVICE, ranged()), 422),
    ],
)
def test_the_clients_mistake(call: Callable[[Api], object], code: int) -> None:
    assert "int_max_str_digits" not in refused(code, "", call, Api()).message


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_a_quantity_may_have_any_length(resource: str) -> None:
    made = Api().create(POD, asking(resource))
    assert made["spec"]["containers"][0]["resources"]["requests"] == {resource: LONG}


@pytest.mark.parametrize("text", [LONG, "\u00b2", "-1", "", "1.0", str(2**63)])
def test_annotations_that_are_no_numbers_of_64_bits(text: str) -> None:
    assert annotated_number(pod(annotations={REVISION: text}), REVISION) is None
    assert annotated_number(pod(annotations={REVISION: str(2**63 - 1)}), REVISION) == 2**63 - 1


def test_a_daemon_set_counts_from_one_where_its_annotation_is_no_number() -> None:
    api = Api()
    spec = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
    made = api.create(DAEMON_SET, {"metadata": {"name": "d"}, "spec": spec})
    made["metadata"]["annotations"] = {TEMPLATE_GENERATION: LONG}
    updated = api.update(DAEMON_SET, "d", made)
    assert updated["metadata"]["annotations"] == {TEMPLATE_GENERATION: "1"}


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("0" * 5000 + "7", 7), (str(2**64 - 1), 2**64 - 1), (str(2**64), None), (LONG, None)]
)
def test_revisions_have_64_bits(text: str, number: int | None) -> None:
    if number is None:
        with pytest.raises(ValueError, match="value out of range"):
            parsed_revision(text)
    else:
        assert parsed_revision(text) == number
