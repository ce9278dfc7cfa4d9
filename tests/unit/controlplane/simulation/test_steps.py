"""One step from the Pods of a workload to its plan, whatever the Pods are."""

from hypothesis import given
from hypothesis import strategies as st

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.pod.pod import is_finished
from kdns.controlplane.simulation.workloads.controller import Plan, Slot, next_step
from kdns.controlplane.simulation.workloads.pods import available_in_s
from kdns.controlplane.storage.object_meta import is_terminating

STATES: dict[str, Json] = {
    "ready": {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    "unready": {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
    "failed": {"status": {"phase": "Failed"}},
    "leaving": {
        "metadata": {"deletionTimestamp": "x"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    },
}


def pod(name: str, state: str) -> Json:
    obj = STATES[state]
    return {**obj, "metadata": {"name": name, **obj.get("metadata", {})}}


def is_available(obj: Json | None) -> bool:
    return obj is not None and available_in_s(obj, 0, 0.0) == 0


SLOTS = st.dictionaries(st.integers(0, 5), st.tuples(st.sampled_from([*STATES]), st.booleans()))
SURPLUS = st.lists(st.sampled_from(["ready", "unready", "leaving"]), max_size=3)


@given(st.integers(0, 6), SLOTS, SURPLUS, st.integers(1, 3), st.booleans())
def test_a_step_keeps_the_bounds(
    size: int, states: dict[int, tuple[str, bool]], surplus: list[str], most: int, in_order: bool
) -> None:
    states = {slot: state for slot, state in states.items() if slot < size}
    pods: dict[Slot, Json] = {slot: pod(f"p{slot}", state) for slot, (state, _) in states.items()}
    outdated = [pods[slot] for slot, (_, is_outdated) in states.items() if is_outdated]
    others = [pod(f"s{number}", state) for number, state in enumerate(surplus)]
    plan = Plan({}, range(size), pods, others, outdated, most, in_order)
    created, deleted = next_step(plan, is_available)
    assert set(created) <= set(range(size)) - set(pods)
    assert not any(map(is_terminating, deleted))
    before = sum(map(is_available, pods.values()))
    after = sum(is_available(obj) for obj in pods.values() if obj not in deleted)
    assert after >= min(before, size - most), "an available Pod is replaced only within the bound"
    if in_order and created:
        assert len(created) == 1
        assert all(is_available(pods.get(slot)) for slot in range(int(created[0])))
    if not (created or deleted):
        waits = any(map(is_terminating, [*pods.values(), *others])) or not all(map(is_available, pods.values()))
        is_done = len(pods) == size and not others and not outdated
        assert waits or is_done, "no step only when the plan is reached or Pods are waited for"
    assert not any(is_finished(obj) for obj in pods.values() if obj not in deleted)
