"""The comparison of rules with the desired ones goes on whatever it meets, and a cancelled change comes to its end."""

import asyncio

import pytest
from structlog.testing import capture_logs

from kdns.errors import ApplyError
from kdns.proxy.sync.io import kernel_mode
from kdns.proxy.sync.io.kernel_mode import KernelMode
from kdns.runtime import tasks


class Mode(KernelMode):
    """One that finds these differences."""

    name = "test"

    def __init__(self, *findings: str | Exception, is_polled: bool) -> None:
        super().__init__()
        self.is_polled = is_polled
        self.findings = list(findings)
        self._unclear.set()

    async def difference(self) -> str:
        finding = self.findings.pop(0) if self.findings else ""
        if isinstance(finding, Exception):
            raise finding
        return finding


@pytest.mark.parametrize("is_polled", [False, True])
async def test_the_comparison_goes_on(monkeypatch: pytest.MonkeyPatch, *, is_polled: bool) -> None:
    """Messages were lost since others change much, and then lists are interrupted too."""
    for module, name in ((kernel_mode, "LOOK_S"), (kernel_mode, "LOOK_AGAIN_S"), (tasks, "RESTART_S")):
        monkeypatch.setattr(module, name, 0.0)
    busy = ApplyError(("netlink",), "they change all the time")
    mode = Mode(busy, busy, OSError("odd"), busy, "chain gone", is_polled=is_polled)
    said = asyncio.Queue[str]()
    with capture_logs() as logs, mode.watch(said.put_nowait):
        async with asyncio.timeout(60):
            assert await said.get() == "unknown: chain gone"
            mode.findings += [ValueError("a defect"), "again"]
            mode._unclear.set()  # noqa: SLF001 - as notices do
            if not is_polled:
                while mode.findings != ["again"]:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0)
                mode._unclear.set()  # noqa: SLF001
            assert await said.get() == "unknown: again"
    warnings = [row["reason"] for row in logs if row["event"] == "rules cannot be compared"]
    assert warnings == [str(busy), "odd", str(busy)]
    assert [row["reason"] for row in logs if row["event"] == "task failed, it begins again"] == ["a defect"]
