"""Why a Service has no ready endpoint, and the command that mends it: it is there only if it works on these objects."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kdns.cluster.objects import EndpointSlice, Pod
from kdns.cluster.observed import ObservedPod, SelectingService
from kdns.cluster.readiness import nothing_ready
from kdns.cluster.state import State
from kdns.spelling import is_misspelling

READY = {"podIP": "10.244.0.9", "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
PENDING = {"phase": "Pending"}
SET = "kubectl set selector service -n shop"
SHOW = "kubectl get pods -n shop --show-labels"
GRAFANA = {"part-of": "monitoring", "name": "grafana"}
ALERTS = {"part-of": "monitoring", "name": "alertmanager"}


def service(name: str, selector: Mapping[str, str] | None) -> SelectingService:
    obj = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"clusterIP": "10.96.0.7", "selector": selector}}
    return msgspec.convert(obj, SelectingService)


def state_of(
    *pods: tuple[str, Mapping[str, str], Mapping[str, Any]], services: Mapping[str, Mapping[str, str]]
) -> State:
    state = State()
    for name, labels, status in pods:
        obj = {"metadata": {"name": name, "namespace": "shop", "labels": labels}, "status": status}
        state.upsert(msgspec.convert(obj, ObservedPod))
    for name, selector in services.items():
        state.upsert(service(name, selector))
    state.synced.add(Pod)
    return state


@pytest.mark.parametrize(
    ("selector", "pods", "others", "text", "command"),
    [
        ({"app": "webb"}, {"web-0": {"app": "web"}}, {}, "; 1 has app=web", f"{SET} web app=web"),
        ({"app": "wbe"}, {"web-0": {"app": "web"}}, {"web-headless": {"app": "web"}}, "", f"{SET} web app=web"),
        ({"ap": "web"}, {"web-0": {"app": "web"}}, {}, "; 1 has app=web", f"{SET} web app=web"),
        ({"app": "webb", "tier": "a"}, {"web-0": {"app": "web", "tier": "a"}}, {}, "", f"{SET} web app=web,tier=a"),
        ({"app": "webb", "tier": "a"}, {"web-0": {"app": "web", "tier": "b"}}, {}, "none has app=webb,tier=a", SHOW),
        ({"app": "web"}, {"redis-0": {"app": "redis"}}, {}, "; none has app=web, nor a label like it", SHOW),
        ({"app": "web"}, {"redis-0": {"app": "redis"}}, {"redis": {"app": "redis"}}, "; none has app=web", SHOW),
        ({"app": "web"}, {"a-0": {"app": "api"}, "b-0": {"role": "web"}}, {}, "; none has app=web", SHOW),
        ({"app": "web-1"}, {"b-0": {"app": "web-2"}}, {}, "; none has app=web-1", SHOW),
        (
            {"app": "carts"},
            {"c-0": {"app": "cart"}},
            {"cart": {"app": "cart"}},
            "1 has app=cart, for Service cart",
            SHOW,
        ),
        (
            {"app": "webb"},
            {"web-0!": {"app": "web"}},
            {},
            "without a ready address",
            "kubectl get pods -n shop -l app=web",
        ),
        (ALERTS, {"g-0": GRAFANA, "g-1": GRAFANA}, {"grafana": GRAFANA}, "; none has name=alertmanager, nor", SHOW),
        ({"a": "1", "b": "2"}, {"x": {"a": "1"}, "y": {"b": "2"}}, {}, "; none has all of these labels", SHOW),
        ({"app": "web"}, {}, {}, 'selector app=web matches 0 of 0 Pods in "shop"', ""),
        (
            {"app": "web"},
            {"web-0!": {"app": "web"}},
            {},
            "matches 1 Pod without a ready address",
            "kubectl get pods -n shop -l app=web",
        ),
    ],
)
def test_a_selector(
    selector: dict[str, str],
    pods: dict[str, dict[str, str]],
    others: dict[str, dict[str, str]],
    text: str,
    command: str,
) -> None:
    """A Pod whose name ends in `!` is Pending."""
    rows = [(name.rstrip("!"), labels, PENDING if name.endswith("!") else READY) for name, labels in pods.items()]
    state = state_of(*rows, services=others)
    known = service("web", selector)
    cause = nothing_ready(state, known)
    assert text in cause.text
    assert cause.command == command
    if command.startswith(SET):
        mended = dict(pair.split("=") for pair in command.rsplit(maxsplit=1)[-1].split(","))
        state.upsert(service("web", mended))
        assert any(pod.metadata.labels and pod.metadata.labels.items() >= mended.items() for pod in state.pods.values())


@pytest.mark.parametrize(
    ("label", "is_ready", "command"),
    [
        ("", True, ""),
        ("wbe", True, "kubectl label endpointslice -n shop web-1 --overwrite kubernetes.io/service-name=web"),
        ("wbe", False, ""),
        ("redis", True, ""),
        ("other", True, ""),
    ],
)
def test_without_a_selector(label: str, is_ready: bool, command: str) -> None:
    state = state_of(services={"other": {"app": "other"}})
    if label:
        labels = {"kubernetes.io/service-name": label}
        endpoints = [{"addresses": ["10.244.0.9"], "conditions": {"ready": is_ready}}]
        obj = {
            "metadata": {"name": "web-1", "namespace": "shop", "labels": labels},
            "addressType": "IPv4",
            "endpoints": endpoints,
        }
        state.upsert(msgspec.convert(obj, EndpointSlice))
    cause = nothing_ready(state, service("web", None))
    assert "no EndpointSlice carries kubernetes.io/service-name=web" in cause.text
    assert cause.command == command


@pytest.mark.parametrize(("has_pod", "command"), [(True, "kubectl describe pod -n shop web-0"), (False, "")])
def test_a_pod_that_is_not_ready(has_pod: bool, command: str) -> None:
    rows = [("web-0", {"app": "web"}, PENDING)] if has_pod else []
    state = state_of(*rows, services={})
    obj = {
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.244.0.9"],
                "conditions": {"ready": False},
                "targetRef": {"kind": "Pod", "name": "web-0", "namespace": "shop"},
            }
        ],
    }
    state.upsert(msgspec.convert(obj, EndpointSlice))
    cause = nothing_ready(state, service("web", {"app": "web"}))
    assert "which is not Ready (web-0, 10.244.0.9)" in cause.text
    assert cause.command == command


@pytest.mark.parametrize(
    ("word", "other", "is_one"),
    [
        ("webb", "web", True),
        ("wbe", "web", True),
        ("frontned", "frontend", True),
        ("web", "web", False),
        ("web-1", "web-2", False),
        ("app", "api", False),
        ("redis-replica", "redis-primary", False),
        ("web", "redis", False),
    ],
)
def test_a_misspelling(word: str, other: str, is_one: bool) -> None:
    assert is_misspelling(word, other) == is_one
