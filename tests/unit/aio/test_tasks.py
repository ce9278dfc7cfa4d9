"""Tasks that nobody awaits tell when they fail."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from kdns.aio.tasks import observed


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
