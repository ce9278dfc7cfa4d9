"""The arithmetic of rollouts, rule by rule."""

import pytest

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.simulation.workloads.deployment import budget, size_of_new, sizes_of_old
from kdns.controlplane.simulation.workloads.pods import int_or_percent


def deployment(replicas: int, surge: int | str = "25%", unavailable: int | str = "25%", **status: int) -> Json:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return {"metadata": {"name": "d"}, "spec": {"replicas": replicas, "strategy": strategy}, "status": status}


def sets(*rows: tuple[int, int]) -> list[Json]:
    """ReplicaSets s0, s1, … from the oldest on, of (wanted, available) Pods."""
    return [
        {
            "metadata": {"name": f"s{number}", "creationTimestamp": f"2024-01-0{number + 1}T00:00:00Z"},
            "spec": {"replicas": size},
            "status": {"availableReplicas": available},
        }
        for number, (size, available) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("value", "total", "up", "down"),
    [
        (3, 10, 3, 3),
        ("25%", 10, 3, 2),
        ("25%", 4, 1, 1),
        ("0%", 7, 0, 0),
        ("100%", 7, 7, 7),
        ("1%", 1, 1, 0),
        ("x", 7, 0, 0),
        (None, 7, 0, 0),
    ],
)
def test_int_or_percent(value: int | str | None, total: int, up: int, down: int) -> None:
    assert (int_or_percent(value, total, up=True), int_or_percent(value, total, up=False)) == (up, down)


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (10, "25%", "25%", (3, 2)),
        (1, "25%", "25%", (1, 0)),
        (0, "25%", "25%", (0, 0)),
        (3, 0, "25%", (0, 1)),
        (3, "0%", 0, (0, 1)),
        (2, 1, 5, (1, 2)),
    ],
)
def test_budget(replicas: int, surge: int | str, unavailable: int | str, expected: tuple[int, int]) -> None:
    assert budget(deployment(replicas, surge, unavailable)) == expected


def test_without_a_rolling_update_there_is_no_budget() -> None:
    assert budget({"metadata": {}, "spec": {"replicas": 5, "strategy": {"type": "Recreate"}}}) == (0, 0)


@pytest.mark.parametrize(
    ("replicas", "surge", "old", "new", "expected"),
    [
        (10, 2, 0, 0, 10),
        (10, 2, 10, 0, 2),
        (10, 2, 10, 2, 2),
        (10, 2, 8, 2, 4),
        (10, 0, 10, 0, 0),
        (10, 5, 3, 9, 10),
        (10, 2, 20, 3, 3),
        (10, 2, 0, 15, 10),
    ],
)
def test_size_of_the_new_one(replicas: int, surge: int, old: int, new: int, expected: int) -> None:
    assert size_of_new(deployment(replicas, surge, 1), sets((old, old), (new, new)), new) == expected


@pytest.mark.parametrize(
    ("replicas", "unavailable", "new", "olds", "expected"),
    [
        (10, 0, (2, 0), [(10, 10)], {}),
        (10, 0, (2, 2), [(10, 10)], {"s0": 8}),
        (10, 2, (0, 0), [(10, 10)], {"s0": 8}),
        (10, 2, (4, 4), [(8, 8)], {"s0": 4}),
        (10, 2, (4, 0), [(8, 8)], {}),
        (10, 0, (2, 0), [(10, 6)], {}),
        (10, 2, (2, 2), [(10, 4)], {"s0": 6}),
        (10, 2, (2, 2), [(5, 5), (5, 5)], {"s0": 1}),
        (10, 2, (2, 2), [(5, 0), (5, 5)], {"s0": 1}),
        (10, 2, (2, 2), [(5, 5), (5, 3)], {"s0": 3, "s1": 3}),
        (10, 2, (10, 10), [(3, 3), (4, 0)], {"s0": 0, "s1": 0}),
        (10, 2, (10, 10), [(3, 9)], {"s0": 0}),
        (10, 2, (8, 8), [(0, 0)], {}),
        (5, 0, (4, 8), [(3, 3)], {"s0": 1}),
    ],
)
def test_sizes_of_old_ones(
    replicas: int, unavailable: int, new: tuple[int, int], olds: list[tuple[int, int]], expected: dict[str, int]
) -> None:
    *old, fresh = sets(*olds, new)
    unchanged = {f"s{number}": size for number, (size, _) in enumerate(olds)}
    assert sizes_of_old(deployment(replicas, 2, unavailable), fresh, old) == unchanged | expected
