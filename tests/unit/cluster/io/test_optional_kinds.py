"""A kind that an API does not have, or keeps to itself, is no reason to wait for ever."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from reflected import ScriptedApi, reflect

from kdns.cluster.objects import Node, Object, ServiceCIDR
from kdns.cluster.state import State
from kdns.errors import ApiServerError

LIST = (
    b'{"kind":"ServiceCIDRList","apiVersion":"networking.k8s.io/v1","metadata":{"resourceVersion":"5"},'
    b'"items":[{"metadata":{"name":"all"},"spec":{"cidrs":["10.96.0.0/16"]}}]}'
)


class Api(ScriptedApi):
    """Refuses with these statuses, one after the other, and then has a list."""

    def __init__(self, *refusals: int) -> None:
        self.refusals = list(refusals)

    async def page(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        assert params is not None
        if self.refusals:
            raise ApiServerError(self.server, f"no {path}", self.refusals.pop(0))
        yield LIST


@pytest.mark.parametrize(
    ("kind", "status", "is_enough"),
    [(ServiceCIDR, 404, True), (ServiceCIDR, 403, True), (ServiceCIDR, 500, False), (Node, 404, False)],
)
async def test_a_refused_kind(kind: type[Object], status: int, is_enough: bool) -> None:
    state, told, refused = State(), [], asyncio.Event()

    async def sleep(_: float) -> None:
        refused.set()
        await asyncio.Event().wait()

    def changed(changes: list[Any]) -> None:
        told.append(list(changes))

    await reflect(Api(status), state, changed, refused, kind=kind, sleep=sleep)
    assert (kind in state.synced) == is_enough
    assert told == ([[]] if is_enough else [])


async def test_what_comes_later_counts() -> None:
    state, told = State(), asyncio.Event()

    def changed(changes: list[Any]) -> None:
        if changes:
            told.set()

    await reflect(Api(404, 404), state, changed, told, kind=ServiceCIDR)
    assert [service_cidr.spec.cidrs for service_cidr in state.service_cidrs.values()] == [("10.96.0.0/16",)]
