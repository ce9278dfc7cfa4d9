"""Tasks that nobody awaits tell when they fail, and threads that read files do not keep the process."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kdns.runtime import tasks
from kdns.runtime.tasks import in_daemon_thread, observed, restarted, uninterrupted


@pytest.mark.parametrize(
    ("failure", "told"),
    [(None, []), (asyncio.CancelledError(), []), (OSError("gone"), [("task failed", "work", "gone")])],
)
async def test_a_failure_is_logged_when_it_happens(failure: BaseException | None, told: list[tuple[str, ...]]) -> None:
    async def work() -> None:
        if failure:
            raise failure

    with capture_logs() as logs:
        task = observed(work(), "work")
        await asyncio.wait((task,))
        await asyncio.sleep(0)
    assert [(entry["event"], entry["task"], entry["reason"]) for entry in logs] == told


async def test_work_that_failed_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RESTART_S", 0.0)
    failures: list[Exception] = [ValueError("odd"), OSError("gone")]

    async def work() -> None:
        if failures:
            raise failures.pop()

    with capture_logs() as logs:
        async with asyncio.timeout(60):
            await restarted(work, "work")
    assert [(entry["event"], entry["task"], entry["reason"]) for entry in logs] == [
        ("task failed, it begins again", "work", "gone"),
        ("task failed, it begins again", "work", "odd"),
    ]
    failures.append(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await restarted(work, "work", ended_by=(OSError,))


@pytest.mark.parametrize("failure", [None, OSError("gone")])
async def test_a_cancellation_waits_for_the_end_of_work(failure: OSError | None) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def work() -> str:
        begun.set()
        await go_on.wait()
        done.append("work")
        if failure:
            raise failure
        return "result"

    calling = asyncio.create_task(uninterrupted(work()))
    await begun.wait()
    for _ in range(3):
        calling.cancel()
        await asyncio.sleep(0)
    assert not calling.done()
    go_on.set()
    await asyncio.wait((calling,))
    assert calling.cancelled()
    assert done == ["work"]


async def test_work_that_is_not_interrupted_returns_and_raises() -> None:
    async def work(result: int) -> float:
        return 1 / result

    assert await uninterrupted(work(1)) == 1.0
    with pytest.raises(ZeroDivisionError):
        await uninterrupted(work(0))


async def test_a_thread_returns_and_raises() -> None:
    assert await in_daemon_thread(lambda: 1) == 1
    with pytest.raises(ValueError, match="no int"):
        await in_daemon_thread(lambda: int("no int"))


def test_a_file_that_never_answers_does_not_keep_the_process(tmp_path: Path) -> None:
    fifo = tmp_path / "Corefile"
    os.mkfifo(fifo)
    program = """
import asyncio, sys
from pathlib import Path
from kdns.runtime.tasks import in_daemon_thread

async def main():
    try:
        async with asyncio.timeout(0.01):
            await in_daemon_thread(Path(sys.argv[1]).read_text)
    except TimeoutError:
        print("ended")

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program, fifo], capture_output=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == (b"ended\n", b"")
