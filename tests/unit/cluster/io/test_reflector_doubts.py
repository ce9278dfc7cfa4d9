"""A list that lacks most of what is known is believed when a second one lacks it too."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping

import pytest
from reflected import ScriptedApi, reflect

from kdns.cluster.io.outage import Outage
from kdns.cluster.objects import Namespace, Object
from kdns.cluster.state import Change, State
from kdns.cluster.watch import RESOURCES, Resource, Timing
from kdns.errors import ApiServerError

GONE = json.dumps({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "code": 410}}).encode() + b"\n"
CONFIRM_S = 7.0


def listed(names: str, kind: str = "ServiceList") -> bytes:
    items = [{"metadata": {"name": name, "namespace": "default"}} for name in names]
    return json.dumps({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": items}).encode()


class Lists(ScriptedApi):
    """Has these lists, one after the other; each watch is told at once that its version is gone."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.bodies = bodies
        self.asked = asyncio.Event()

    async def page(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        assert path
        assert params
        if not self.bodies:
            self.asked.set()
            await asyncio.Event().wait()
        yield self.bodies.pop(0)

    async def watch(self, _params: Mapping[str, str]) -> AsyncIterator[bytes]:
        yield GONE


ALL = "abcdefghij"


@pytest.mark.parametrize(
    ("lists", "left", "waits"),
    [
        pytest.param([""], ALL, 1, id="an empty list is not believed"),
        pytest.param(["", ""], "", 1, id="a second one is"),
        pytest.param(["", ALL], ALL, 1, id="a second one that has them all"),
        pytest.param(["", ALL, ""], ALL, 2, id="each spell has to be confirmed"),
        pytest.param(["abcd"], ALL, 1, id="nor one that lacks six of ten"),
        pytest.param(["abcde"], "abcde", 0, id="half of them may go at once"),
        pytest.param(["kl", "kl"], "kl", 1, id="another cluster is believed after a while"),
        pytest.param(["ConfigMapList", "ConfigMapList", "ConfigMapList"], ALL, 0, id="another kind never"),
    ],
)
async def test_what_is_left_after_these_lists(lists: list[str], left: str, waits: int) -> None:
    api = Lists([listed(ALL)] + [listed("", page) if page.endswith("List") else listed(page) for page in lists])
    state, removed, waited_s = State(), list[str](), list[float]()

    def changed(changes: list[Change]) -> None:
        removed.extend(change.key[1] for change in changes if change.new is None)

    async def sleep(wait_s: float) -> None:
        waited_s.append(wait_s)
        await asyncio.sleep(0)

    await reflect(api, state, changed, api.asked, timing=Timing(confirm_s=CONFIRM_S), sleep=sleep)
    assert "".join(sorted(name for _, name in state.services)) == left
    assert sorted(removed) == sorted(set(ALL) - set(left))
    assert waited_s.count(CONFIRM_S) == waits


class Refusing(ScriptedApi):
    """Refuses until it is told not to; each watch stays open."""

    def __init__(self, refusal: ApiServerError) -> None:
        self.refusal: ApiServerError | None = refusal

    async def page(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        assert params
        if self.refusal:
            raise self.refusal
        yield listed(
            "", next(f"{resource.kind.__name__}List" for resource in RESOURCES.values() if resource.path == path)
        )


@pytest.mark.parametrize("status", [0, 403, 503])
async def test_the_first_answer_ends_the_backoff_of_all_kinds(status: int) -> None:
    """One kind may ask again; the others wait for ever, but for the answer that it gets."""
    api, outage, state, may_ask = (
        Refusing(ApiServerError("http://api", "no", status)),
        Outage(),
        State(),
        asyncio.Event(),
    )
    waiting, all_wait, synced = set[type[Object]](), asyncio.Event(), asyncio.Event()

    def follow(resource: Resource) -> asyncio.Task[None]:
        async def sleep(_: float) -> None:
            waiting.add(resource.kind)
            if waiting == kinds:
                all_wait.set()
            await (may_ask if resource.kind is Namespace else asyncio.Event()).wait()

        def changed(_: list[Change]) -> None:
            if kinds <= state.synced:
                synced.set()

        outcome = reflect(api, state, changed, synced, kind=resource.kind, outage=outage, sleep=sleep)
        return asyncio.create_task(outcome)

    kinds = {each.kind for each in RESOURCES.values() if each.api_version == "v1"}
    tasks = [follow(RESOURCES[kind]) for kind in kinds]
    async with asyncio.timeout(60):
        await all_wait.wait()
        api.refusal = None
        may_ask.set()
        await synced.wait()
    for task in tasks:
        task.cancel()
