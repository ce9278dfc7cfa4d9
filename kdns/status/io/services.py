"""The pages of the Services of followed clusters: all of them, and one in detail."""

from __future__ import annotations

import asyncio
import time
from bisect import insort
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from aiohttp import web

from kdns.cluster.objects import Key, Service
from kdns.cluster.state import State
from kdns.runtime.http.server import Handler
from kdns.runtime.tasks import in_slices
from kdns.status.io.diagnoses import Diagnoses, Followed
from kdns.status.io.pages import page, parameters
from kdns.status.io.watched import utc
from kdns.status.page import Advice, Form, Section, View, age
from kdns.status.paths import SERVICE, SERVICES
from kdns.status.problems import of_service
from kdns.status.services import (
    PAGE_ROWS,
    Search,
    endpoints_table,
    facts,
    last_page,
    matches,
    number_of,
    row,
    site_links,
    table,
)

Details: TypeAlias = Callable[[State, Service], AsyncIterator[Section]]
"""What a program knows of a Service beyond its objects."""


class ServicePages:
    """One request at a time, in slices: the loop has queries to answer meanwhile, or rules to sync."""

    def __init__(self, title: str, clusters: Callable[[], Sequence[Followed]], details: Details) -> None:
        self._title, self._clusters, self._details = title, clusters, details
        self._diagnoses = Diagnoses()
        self._turns = asyncio.Lock()

    def pages(self) -> Mapping[str, Handler]:
        return {SERVICES: self._services, SERVICE: self._service}

    async def problems(self) -> list[Advice]:
        """Of all clusters."""
        diagnoses = [await self._diagnoses.of(cluster) for cluster in self._clusters()]
        return [problem for diagnosis in diagnoses for problem in diagnosis.top]

    async def _services(self, request: web.BaseRequest) -> web.Response:
        search = Search.of(*parameters(request, "filter", "page", "problems", "cluster"))
        if (cluster := self._cluster(search.cluster)) is None:
            return await self._missing("There is no such cluster.")
        state, diagnosis = cluster.state, await self._diagnoses.of(cluster)
        async with self._turns:
            keys = await matching_keys(state, diagnosis.wrong if search.is_wrong else state.services, search)
            shown = min(max(search.page, 1), last_page(len(keys)))
            first = (shown - 1) * PAGE_ROWS
            rows = [
                row(state, service, diagnosis.wrong.get(service.key, ""), search.cluster)
                async for service in in_slices(_services_of(state, keys[first : first + PAGE_ROWS]))
            ]
        section = Section("Services", tables=(table(search, rows, shown, len(keys)),))
        return await page(self._view("Services", diagnosis.top, (search.form(),), (section,), SERVICES))

    async def _service(self, request: web.BaseRequest) -> web.Response:
        namespace, name, number = parameters(request, "namespace", "name", "cluster")
        cluster, key = self._cluster(number_of(number, 0)), (namespace, name)
        service = cluster.state.services.get(key) if cluster else None
        if cluster is None or service is None:
            deleted_s = cluster.state.deleted.get(key) if cluster else None
            when = f" It was deleted {age(time.time() - deleted_s)} ago." if deleted_s else ""
            return await self._missing(f"There is no Service {name!r} in {namespace!r}.{when}")
        state, problems = cluster.state, (await self._diagnoses.of(cluster)).by_service.get(key, ())
        async with self._turns:
            sections = [Section("Service", (*facts(state, service),))]
            sections += [section async for section in self._details(state, service)]
            sections.append(Section("Endpoints", tables=(endpoints_table(state, key),)))
        top, notes = of_service(problems)
        if notes.rows:
            sections.append(Section("Notes", tables=(notes,)))
        return await page(self._view("/".join(key), top, (), sections))

    def _cluster(self, number: int) -> Followed | None:
        clusters = self._clusters()
        return clusters[number] if number < len(clusters) else None

    async def _missing(self, text: str) -> web.Response:
        return await page(self._view("not found", [Advice(text)], (Search().form(),), ()), status=404)

    def _view(
        self,
        title: str,
        problems: Sequence[Advice],
        forms: Sequence[Form],
        sections: Sequence[Section],
        path: str = "",
    ) -> View:
        return View(f"{self._title}: {title}", utc(time.time()), problems, forms, sections, site_links(path))


async def matching_keys(state: State, keys: Iterable[Key], search: Search) -> list[Key]:
    """In order. Each key is inserted in its place: to sort all of them at the end would block the loop for too long."""
    words = search.text.lower().split()
    ordered: list[Key] = []
    async for key in in_slices([*keys]):
        service = state.services.get(key)
        if service is not None and matches(service, words):
            insort(ordered, key)
    return ordered


def _services_of(state: State, keys: Iterable[Key]) -> list[Service]:
    return [service for key in keys if (service := state.services.get(key))]
