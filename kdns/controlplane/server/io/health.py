"""Health checks of the API: /healthz, /livez and /readyz with single checks below, and their counts, /metrics/slis.

Differs: /livez leaves the storage out, because a restart does not repair a disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.runtime.http.sites import slis
from kdns.runtime.http.zpages import HealthChecks

CHECKS: Final[Mapping[str, tuple[str, ...]]] = {
    "healthz": ("ping", "storage"),
    "livez": ("ping",),
    "readyz": ("ping", "storage"),
}


class Health:
    """The state of one server. `durable` returns when all writes are stored, or raises StatusError."""

    def __init__(self, durable: Callable[[], Awaitable[None]]) -> None:
        self._durable, self._checks = durable, HealthChecks()
        self._slis = slis(self._checks)

    async def response(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Returns the response for a path of health checks and of their metrics; None for any other path."""
        match request.path.strip("/").split("/"):
            case ["metrics", "slis"]:
                return await self._slis(request)
            case [of] if of in CHECKS:
                return await self._checked(request, of)
            case [of, name] if of in CHECKS and name in CHECKS[of]:
                failure = await self._failure(of, name)
                return _text(f"internal server error: {failure}\n", 500) if failure else _text("ok")
            case [of, _, *_] if of in CHECKS:
                return _text("404 page not found\n", 404)
        return None

    async def _checked(self, request: web.BaseRequest, of: str) -> web.Response:
        lines, failed = [], False
        excluded = set(request.query.getall("exclude", []))
        for name in CHECKS[of]:
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
            elif failure := await self._failure(of, name):
                lines.append(f"[-]{name} failed: {failure}")
                failed = True
            else:
                lines.append(f"[+]{name} ok")
        if unknown := sorted(excluded - {*CHECKS[of]}):
            names = ",".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        if not (failed or "verbose" in request.query):
            return _text("ok")
        return _text("\n".join([*lines, f"{of} check {'failed' if failed else 'passed'}", ""]), 500 if failed else 200)

    async def _failure(self, of: str, name: str) -> str:
        """Returns why a check fails; "" if it passes."""
        failure = ""
        if name == "storage":
            try:
                await self._durable()
            except StatusError as error:
                failure = error.message
        self._checks.add(name, of, passes=not failure)
        return failure


def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, headers={"X-Content-Type-Options": "nosniff"})
