"""/statusz and /flagz, as in the components of Kubernetes, and the /healthz that /metrics/slis counts.

The default is text. With `Accept: application/json;v=v1beta1;g=config.k8s.io;as=Statusz` (or Flagz) the response is
JSON (KEP-4827 and KEP-4828, enabled by default in Kubernetes 1.36).
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

import kdns
from kdns.runtime.http.server import Handler

GROUP: Final = "config.k8s.io"
VERSIONS: Final = ("v1beta1", "v1alpha1")
EMULATED: Final = "1.36"
"""The Kubernetes version whose behaviour kdns implements."""
NAME: Final = "kdns"
WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees"
    " and is for debugging purposes only."
)


@dataclass(slots=True)
class HealthChecks:
    """Results of health checks by check, status and type, and /healthz with the one check `ping`."""

    results: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    passes: dict[tuple[str, str], bool] = field(default_factory=dict)
    """Whether a check passed the last time, by check and type."""

    def add(self, name: str, check_type: str, *, passes: bool) -> None:
        self.results[name, "success" if passes else "error", check_type] += 1
        self.passes[name, check_type] = passes

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.add("ping", "healthz", passes=True)
        text = "[+]ping ok\nhealthz check passed\n" if "verbose" in request.query else "ok"
        return web.Response(text=text, headers={"X-Content-Type-Options": "nosniff"})


def zpages(
    flags: Mapping[str, str], paths: Callable[[], Iterable[str]], now_s: Callable[[], float] = time.time
) -> dict[str, Handler]:
    """The handlers by path; the process started now, and `paths` are its other paths."""
    started_s = now_s()

    def status() -> tuple[Mapping[str, Any], Iterator[str]]:
        up_s = int(now_s() - started_s)
        others = sorted({f"/{path.split('/')[1]}" for path in paths()})
        fields = {
            "startTime": datetime.fromtimestamp(started_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "uptimeSeconds": up_s,
            "binaryVersion": kdns.__version__,
            "emulationVersion": EMULATED,
            "paths": others,
        }
        return fields, _status_lines(started_s, up_s, others)

    def flagged() -> tuple[Mapping[str, Any], Iterator[str]]:
        return {"flags": dict(flags)}, (f"{name}={value}" for name, value in sorted(flags.items()))

    return {
        "/statusz": partial(_answer, kind="Statusz", title=f"{NAME} statusz", pages=status),
        "/flagz": partial(_answer, kind="Flagz", title=f"{NAME} flags", pages=flagged),
    }


def _status_lines(started_s: float, up_s: int, paths: Iterable[str]) -> Iterator[str]:
    started = datetime.fromtimestamp(started_s, UTC)
    yield f"Started: {started:%a %b} {started.day:2} {started:%H:%M:%S UTC %Y}"
    yield f"Up: {up_s // 3600} hr {up_s // 60 % 60:02} min {up_s % 60:02} sec"
    yield f"Python version: {platform.python_version()}"
    yield f"Binary version: {kdns.__version__}"
    yield f"Emulation version: {EMULATED}"
    yield f"Paths: {' '.join(paths)}"


async def _answer(
    request: web.BaseRequest, *, kind: str, title: str, pages: Callable[[], tuple[Mapping[str, Any], Iterator[str]]]
) -> web.Response:
    version = accepted_version(request.headers.get("Accept", ""), kind)
    if version is None:
        types = ", ".join(("text/plain", *(f"application/json;v={known};g={GROUP};as={kind}" for known in VERSIONS)))
        return web.Response(text=f"expected one of these types: {types}\n", status=HTTPStatus.NOT_ACCEPTABLE)
    fields, lines = pages()
    if version:
        head = {"kind": kind, "apiVersion": f"{GROUP}/{version}", "metadata": {"name": NAME}}
        return web.json_response(head | dict(fields))
    return web.Response(text="\n".join(("", title, WARNING, "", *lines, "")))


def accepted_version(accept: str, kind: str) -> str | None:
    """The first acceptable version of the JSON, "" if text comes first, None if nothing acceptable is served."""
    for media_range in accept.split(",") if accept.strip() else ["*/*"]:
        media, *parts = (part.strip() for part in media_range.split(";"))
        if media in {"*/*", "text/*", "text/plain"}:
            return ""
        parameters = dict(part.split("=", 1) for part in parts if "=" in part)
        if media == "application/json" and (parameters.get("g"), parameters.get("as")) == (GROUP, kind):
            version = parameters.get("v")
            if version in VERSIONS:
                return version
    return None
