"""kdns's own control plane streams its lists, in the bytes that kube-apiserver would send."""

from __future__ import annotations

import asyncio

from fake_api import until
from rest_client import SERVICES, service, serving

from kdns.cluster.io.informer import FollowStats, follow
from kdns.cluster.objects import Service
from kdns.cluster.source import Scope, Source
from kdns.cluster.state import State


async def test_its_lists_are_streamed() -> None:
    async with serving() as client:
        for number in range(30):
            await client("POST", SERVICES, service(f"s{number}"))
        state, stats = State(), FollowStats()
        host, port = client.server.address
        source, scope = Source(endpoint=f"http://{host}:{port}"), Scope(kinds=(Service,))
        task = asyncio.create_task(follow(source, state, lambda _: None, stats, scope=scope))
        try:
            await until(lambda: Service in state.synced)
            assert {name for _, name in state.services} == {f"s{number}" for number in range(30)}
            assert (stats.kinds[Service].lists, sum(stats.rest.requests.values())) == (1, 1)
            await client("DELETE", f"{SERVICES}/s7")
            await until(lambda: ("default", "s7") not in state.services)
            assert len(state.services) == 29
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
