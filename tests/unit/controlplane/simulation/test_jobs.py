"""The Job controller: Pods until enough of them succeeded."""

from __future__ import annotations

from typing import Any

from workload_cluster import START_S, Workbench

from kdns.controlplane.apimachinery.kinds import JOB, Json
from kdns.controlplane.storage.object_meta import timestamp


class Jobs(Workbench):
    """One Job; its Pods end as the test says."""

    def started(self, **spec: Any) -> Jobs:
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        self.make(JOB, {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}, **spec}})
        self.settle()
        return self

    @property
    def status(self) -> Json:
        status: Json = self.get(JOB, "j")["status"]
        return status

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        return {row["type"]: (row["status"], row["reason"]) for row in self.status.get("conditions") or ()}

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]

    def finish(self, number: int, phase: str = "Succeeded") -> None:
        for pod in self.pods()[:number]:
            self.report(pod, ready=False, phase=phase)
        self.settle()


def test_one_pod_is_enough() -> None:
    bench = Jobs().started()
    assert (bench.status["active"], bench.status["startTime"]) == (1, timestamp(START_S))
    bench.now_s += 5
    bench.finish(1)
    reached = ("True", "CompletionsReached")
    assert bench.conditions == {"SuccessCriteriaMet": reached, "Complete": reached}
    assert (bench.status["succeeded"], bench.status.get("active", 0)) == (1, 0)
    assert bench.status["completionTime"] == timestamp(START_S + 5)
    assert bench.reasons == ["SuccessfulCreate", "Completed"]
    assert len(bench.names()) == 1, "what ended is kept for its logs"


def test_parallelism_bounds_how_many_run() -> None:
    bench = Jobs().started(completions=5, parallelism=2)
    for left in range(5, 0, -1):
        assert len(bench.pods()) == min(2, left)
        bench.finish(1)
    assert (bench.status["succeeded"], len(bench.names())) == (5, 5)
    assert "Complete" in bench.conditions


def test_a_work_queue_ends_with_its_first_success() -> None:
    bench = Jobs().started(parallelism=3)
    assert len(bench.pods()) == 3
    bench.finish(1)
    assert "Complete" not in bench.conditions
    bench.finish(2)
    assert (bench.status["succeeded"], len(bench.names())) == (3, 3)
    assert "Complete" in bench.conditions


def test_a_pod_that_failed_is_replaced() -> None:
    bench = Jobs().started()
    for _ in range(2):
        bench.finish(1, "Failed")
    assert (bench.status["failed"], bench.status["active"]) == (2, 1)
    bench.finish(1)
    assert "Complete" in bench.conditions


def test_suspension() -> None:
    bench = Jobs().started(suspend=True)
    assert bench.names() == []
    assert bench.conditions == {"Suspended": ("True", "JobSuspended")}
    assert "startTime" not in bench.status
    bench.change(JOB, "j", suspend=False)
    bench.settle()
    assert bench.conditions == {"Suspended": ("False", "JobResumed")}
    assert len(bench.pods()) == 1
    bench.change(JOB, "j", suspend=True)
    bench.settle()
    assert bench.names() == []


def test_the_jobs_of_others_are_left_alone() -> None:
    bench = Jobs().started(managedBy="example.com/queue")
    assert (bench.names(), bench.status) == ([], {})
