"""Lists in pages (Kubernetes API Concepts, "Retrieving large results sets in chunks")."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol

from kdns.cluster.objects import Object
from kdns.cluster.watch import DECODE_ERRORS, DecodeFailure, ListDecoder, ListPage, Resource
from kdns.errors import ApiServerError

PAGE_OBJECTS = 500
"""Objects of one page, as in kubectl's requests."""

OBJECTS_MAX, PAGES_MAX = 250_000, 10_000
"""Limits of one list. Kubernetes is tested with 150,000 Pods, its kind with the most objects.

This many small Services and their answers take 320 MiB, which fits into the memory limit of deploy/.
"""


class EndlessListError(ApiServerError):
    """A list with more objects or pages than any cluster has; retried `after_s` later."""

    cause, after_s = "endless", 30.0

    def __init__(self, server: str, path: str, bound: str) -> None:
        super().__init__(
            server,
            f"GET {path}: more than {bound}; kdns stops there because the list seems endless. Check that the server "
            "is a Kubernetes API, and that no proxy in front of it drops the parameter continue",
        )


class Api(Protocol):
    """The reading part of kdns.cluster.io.connection.Connection."""

    @property
    def server(self) -> str: ...

    def stream(self, path: str, params: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The chunks of a successful response; ApiServerError otherwise."""


async def pages(
    connection: Api, resource: Resource, params: Mapping[str, str], page_objects: int, *, namespace: str = ""
) -> AsyncGenerator[ListPage, None]:
    """The pages of a list, in parts as they arrive; `page_objects` 0: one page.

    Reads on only when the caller wants the next part. Raises ApiServerError (410 Gone if the server has compacted the
    list's revision), EndlessListError, or one of DECODE_ERRORS.
    """
    query = dict(params) | ({"limit": str(page_objects)} if page_objects else {})
    path, objects = resource.path_in(namespace), 0
    for _ in range(PAGES_MAX):
        token = ""
        async with aclosing(_parts(connection, resource, path, query)) as parts:
            async for part in parts:
                objects += len(part.objects) + len(part.failures)
                if objects > OBJECTS_MAX:
                    raise EndlessListError(connection.server, path, f"{OBJECTS_MAX} objects")
                token = part.continue_token
                yield part
        if not token:
            return
        if token == query.get("continue"):
            raise ApiServerError(connection.server, f"{resource.path}: the same page follows itself")
        query["continue"] = token
    raise EndlessListError(connection.server, path, f"{PAGES_MAX} pages")


async def _parts(
    connection: Api, resource: Resource, path: str, query: Mapping[str, str]
) -> AsyncGenerator[ListPage, None]:
    decoder = ListDecoder(resource)
    async with connection.stream(path, query) as chunks:
        async for chunk in chunks:
            part = decoder.feed(chunk)
            if part.objects or part.failures:
                yield part
    yield decoder.end()


async def list_objects(
    connection: Api, resource: Resource, on_failure: Callable[[DecodeFailure], None], *, namespace: str = ""
) -> list[Object]:
    """All objects of a kind, for programs that list once; ApiServerError, also for a response that is not a list."""
    objects: list[Object] = []
    try:
        async with aclosing(pages(connection, resource, {}, PAGE_OBJECTS, namespace=namespace)) as parts:
            async for part in parts:
                objects += part.objects
                for failure in part.failures:
                    on_failure(failure)
    except DECODE_ERRORS as error:
        reason = f"{resource.path}: not the answer of a Kubernetes API: {error}"
        raise ApiServerError(connection.server, reason) from error
    return objects
