"""The Job controller: Pods until enough of them succeeded. A small cluster of dicts follows its actions."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.kinds import JOB, POD, Json
from kdns.controlplane.controllers.reconciler import Change, Request, Result
from kdns.controlplane.kinds.batch.defaults import default_job, with_job_selector
from kdns.controlplane.simulation.workloads.job import Jobs
from kdns.controlplane.storage.object_meta import timestamp

START_S = 1_700_000_000.0
KEY: Key = ("default", "j")


class Cluster:
    """A Job and its Pods; Pods end as the test says."""

    def __init__(self, **spec: Any) -> None:
        self.now_s = START_S
        numbers = count()
        self.controller = Jobs(lambda: f"p{next(numbers)}")
        self.pods: dict[Key, Json] = {}
        self.reasons: list[str] = []
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
        meta = {"name": "j", "namespace": "default", "uid": "u", "generation": 1}
        self.job: Json | None = with_job_selector(
            default_job({"metadata": meta, "spec": {"template": template, **spec}})
        )
        self.controller.observe(Change(JOB, KEY, self.job, 1))

    @property
    def status(self) -> Json:
        assert self.job
        found: Json = self.job.get("status") or {}
        return found

    def change(self, **spec: Any) -> None:
        assert self.job
        self.job = {**self.job, "spec": {**self.job["spec"], **spec}}
        self.controller.observe(Change(JOB, KEY, self.job, 1))

    def step(self) -> Result:
        result = self.controller.reconcile(Request(KEY, self.now_s))
        self.reasons += [event.reason for event in result.events]
        for action in result.actions:
            meta = action.obj["metadata"]
            key = (meta["namespace"], meta["name"])
            if action.kind == JOB:
                self.job = None if action.verb == "delete" else action.obj
                self.controller.observe(Change(JOB, KEY, self.job, 1))
            elif action.verb == "delete":
                self.end(key, None)
            else:
                self.end(key, {**action.obj, "metadata": {**meta, "uid": meta["name"]}})
        return result

    def settle(self) -> Result:
        for _ in range(50):
            result = self.step()
            if not result.actions:
                return result
        pytest.fail("the controller never comes to rest")

    def end(self, key: Key, pod: Json | None) -> None:
        self.pods.pop(key, None)
        if pod:
            self.pods[key] = pod
        self.controller.observe(Change(POD, key, pod, 1))

    def finish(self, number: int, phase: str = "Succeeded") -> None:
        """Let some of the Pods that run come to an end."""
        running = [(key, pod) for key, pod in self.pods.items() if "status" not in pod]
        for key, pod in running[:number]:
            self.end(key, {**pod, "status": {"phase": phase}})

    def conditions(self) -> dict[str, tuple[str, str]]:
        return {row["type"]: (row["status"], row["reason"]) for row in self.status.get("conditions") or ()}


def test_one_pod_is_enough() -> None:
    cluster = Cluster()
    cluster.settle()
    assert cluster.status["active"] == 1
    assert cluster.status["startTime"] == timestamp(START_S)
    cluster.now_s += 5
    cluster.finish(1)
    cluster.settle()
    assert cluster.conditions() == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
    assert (cluster.status["succeeded"], cluster.status.get("active", 0)) == (1, 0)
    assert cluster.status["completionTime"] == timestamp(START_S + 5)
    assert cluster.reasons == ["SuccessfulCreate", "Completed"]
    assert len(cluster.pods) == 1, "what ended is kept for its logs"


def test_parallelism_bounds_how_many_run() -> None:
    cluster = Cluster(completions=5, parallelism=2)
    for _ in range(5):
        cluster.settle()
        running = [pod for pod in cluster.pods.values() if "status" not in pod]
        assert 1 <= len(running) <= 2
        cluster.finish(1)
    cluster.settle()
    assert (cluster.status["succeeded"], cluster.reasons.count("SuccessfulCreate")) == (5, 5)
    assert "Complete" in cluster.conditions()
    assert cluster.settle() == Result()


def test_a_work_queue_ends_with_its_first_success() -> None:
    cluster = Cluster(parallelism=3)
    cluster.settle()
    assert len(cluster.pods) == 3
    cluster.finish(1)
    cluster.settle()
    assert "Complete" not in cluster.conditions()
    cluster.finish(2)
    cluster.settle()
    assert (cluster.status["succeeded"], len(cluster.pods)) == (3, 3)
    assert "Complete" in cluster.conditions()


def test_a_pod_that_failed_is_replaced() -> None:
    cluster = Cluster()
    for _ in range(2):
        cluster.settle()
        cluster.finish(1, "Failed")
    cluster.settle()
    assert (cluster.status["failed"], cluster.status["active"]) == (2, 1)
    cluster.finish(1)
    cluster.settle()
    assert "Complete" in cluster.conditions()


def test_suspension() -> None:
    cluster = Cluster(suspend=True)
    cluster.settle()
    assert cluster.pods == {}
    assert cluster.conditions() == {"Suspended": ("True", "JobSuspended")}
    assert "startTime" not in cluster.status
    cluster.change(suspend=False)
    cluster.settle()
    assert cluster.conditions() == {"Suspended": ("False", "JobResumed")}
    assert len(cluster.pods) == 1
    cluster.change(suspend=True)
    cluster.settle()
    assert cluster.pods == {}


def test_the_jobs_of_others_are_left_alone() -> None:
    cluster = Cluster(managedBy="example.com/queue")
    assert cluster.settle() == Result()
    assert cluster.status == {}
