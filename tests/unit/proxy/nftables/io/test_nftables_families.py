"""Mode nftables on a kernel that was built without IPv6 in its nftables: IPv4 works, and the log says so once."""

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address

import pytest
from small_cluster import CONFIG, ENDPOINTS, NODE_VIEW, endpoints, service, state
from structlog.testing import capture_logs

from kdns.errors import ApplyError
from kdns.net import Family
from kdns.proxy.nftables.elements import Request
from kdns.proxy.nftables.io import nft, proxier
from kdns.proxy.nftables.io.proxier import NftablesProxier, clean_up
from kdns.proxy.plan.planner import Planner


class Kernel:
    """What is carried out; `unknown` is what nftables know nothing of."""

    def __init__(self, *unknown: str) -> None:
        self.unknown = [f"table {family} " for family in unknown]
        self.done: list[str] = []
        self.elements = b""

    async def apply(self, *commands: str) -> None:
        if refused := self._refused(commands):
            raise ApplyError(("nft",), refused)
        self.done.extend(commands)

    async def apply_elements(self, changes: Sequence[Request]) -> None:
        self.elements += b"".join(body for _, body in changes)

    async def check(self, *commands: str) -> str:
        return self._refused(commands)

    async def object_names(self, family: Family, _table: str) -> dict[str, list[str]]:
        if any(each in f"table {'ip6' if family == 'IPv6' else 'ip'} " for each in self.unknown):
            raise ApplyError(("netlink",), "Operation not supported")
        return {}

    def _refused(self, commands: Sequence[str]) -> str:
        text = "\n".join(commands)
        return "Operation not supported" if any(each in text for each in self.unknown) else ""


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Kernel:
    made = Kernel(*request.param)
    for module, name in ((nft, "apply"), (nft, "apply_elements"), (nft, "check"), (proxier, "object_names")):
        monkeypatch.setattr(module, name, getattr(made, name))
    return made


@pytest.mark.parametrize(
    ("kernel", "served", "told"),
    [
        ((), {"table ip ", "table ip6 "}, []),
        (("ip6",), {"table ip "}, ["virtual IPs of IPv6 are not served"]),
    ],
    indirect=["kernel"],
)
def test_what_the_kernel_knows_is_served(kernel: Kernel, served: set[str], told: list[str]) -> None:
    async def work() -> None:
        known = state(service(1, endpoints(1, "p1")))
        planner, mode = Planner(known, NODE_VIEW, CONFIG), NftablesProxier()
        await mode.sync_full(planner.plan)
        changes = [change for endpoint in endpoints(1, "r1") if (change := known.upsert(endpoint))]
        await mode.sync_partial(planner.plan, planner.changed(changes))
        await mode.sweep()
        await mode.sync_full(planner.plan)
        await clean_up()

    with capture_logs() as logs:
        asyncio.run(work())
    text = "\n".join(kernel.done)
    assert {family for family in ("table ip ", "table ip6 ") if family in text} == served
    assert (ip_address(ENDPOINTS["r1"][1]).packed in kernel.elements) == ("table ip6 " in served)
    assert [row["event"] for row in logs if row["log_level"] == "warning"] == told


@pytest.mark.parametrize("kernel", [("ip", "ip6")], indirect=True)
def test_a_kernel_that_knows_neither_is_an_error(kernel: Kernel) -> None:
    with pytest.raises(ApplyError, match="not supported"):
        asyncio.run(NftablesProxier().sync_full(Planner(state(), NODE_VIEW, CONFIG).plan))
    assert not kernel.done


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("kernel", [()], indirect=True)
def test_a_sweep_that_is_cancelled_deletes_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner that ends while it sweeps: who sweeps next finds that done."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    sent: list[bytes] = []

    async def slow(changes: Sequence[Request]) -> None:
        sent.append(b"".join(body for _, body in changes))
        begun.set()
        await go_on.wait()

    async def work() -> None:
        known = state(service(1, endpoints(1, "p1", "r1")))
        planner, mode = Planner(known, NODE_VIEW, CONFIG), NftablesProxier()
        await mode.sync_full(planner.plan)
        changes = [change for endpoint in endpoints(1, "p1") if (change := known.upsert(endpoint))]
        await mode.sync_partial(planner.plan, planner.changed(changes))
        monkeypatch.setattr(nft, "apply_elements", slow)
        sweep = asyncio.create_task(mode.sweep())
        async with asyncio.timeout(60):
            await begun.wait()
        sweep.cancel()
        later = asyncio.create_task(mode.sweep())
        await asyncio.sleep(0)
        go_on.set()
        async with asyncio.timeout(60):
            await later
        assert sweep.cancelled()
        assert len([each for each in sent if each]) == len(set(sent) - {b""})

    asyncio.run(work())
    assert any(sent)
