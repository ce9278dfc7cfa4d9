"""A sync that is cancelled ends with what it had sent to the kernel: nothing changes behind the next sync's back."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from kdns.proxy.nftables.io import nft
from kdns.proxy.sync.io.kernel_mode import in_thread
from kdns.proxy.xtables.io.programs import Programs

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
