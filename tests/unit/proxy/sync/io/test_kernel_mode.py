"""The comparison of rules with the desired ones goes on whatever it meets, and a cancelled change comes to its end."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from kdns.errors import ApplyError
from kdns.proxy.nftables.io import nft
from kdns.proxy.sync.io import kernel_mode
from kdns.proxy.sync.io.kernel_mode import KernelMode, in_thread
from kdns.proxy.xtables.io.programs import Programs
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


Change = Callable[[], Awaitable[object]]


class Slow:
    """A kernel that carries out one change, in a thread, when `go_on` is set."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.done = threading.Event(), threading.Event(), False

    def work(self, *_: object) -> None:
        self.begun.set()
        assert self.go_on.wait(60)
        self.done = True

    async def run(self, *_: object, **__: object) -> None:
        await asyncio.to_thread(self.work)


def nft_text(kernel: Slow, monkeypatch: pytest.MonkeyPatch) -> Change:
    monkeypatch.setattr(nft, "_run", kernel.run)
    return lambda: nft.apply("flush ruleset")


def nft_elements(kernel: Slow, monkeypatch: pytest.MonkeyPatch) -> Change:
    monkeypatch.setattr(nft, "_transact", kernel.work)
    return lambda: nft.apply_elements([(0, bytes(nft.AT_ONCE_BYTES + 1))])


def iptables(kernel: Slow, monkeypatch: pytest.MonkeyPatch) -> Change:
    monkeypatch.setattr(Programs, "_restore", kernel.run)
    return lambda: Programs("nft", (1, 8, 9), "").restore("IPv4", "")


def thread(kernel: Slow, _: pytest.MonkeyPatch) -> Change:
    """As in modes ipvs and kernelspace."""
    return lambda: in_thread(kernel.work)


@pytest.mark.parametrize("door", [nft_text, nft_elements, iptables, thread])
async def test_a_cancelled_sync_ends_with_its_transaction(
    door: Callable[[Slow, pytest.MonkeyPatch], Change], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Slow()
    sync = asyncio.ensure_future(door(kernel, monkeypatch)())
    try:
        assert await asyncio.to_thread(kernel.begun.wait, 60)
        sync.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not sync.done()
    finally:
        kernel.go_on.set()
        await asyncio.wait((sync,))
    assert sync.cancelled()
    assert kernel.done
