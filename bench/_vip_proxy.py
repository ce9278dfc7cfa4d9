"""`kdns proxy` in one mode, beside an API that serves the objects which are read from standard input.

    _vip_proxy.py MODE FAMILY CORES    prints "ready" when rules, relays or virtual servers are there, and stays

Each line of standard input is a Service with its EndpointSlice.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from _cluster import list_type
from _lanes import CLIENT
from _vip_services import RANGES
from aiohttp import web

from kdns.net import FAMILIES

NODE: Final = "node-0"


async def serve(mode: str, family: str, cores: frozenset[int]) -> None:
    """Serve the objects, and run the proxy until this program is to end."""
    pairs = [json.loads(line) for line in sys.stdin]
    at = f"{CLIENT[0]}.1" if family == "IPv4" else f"{CLIENT[1]}:1"
    node = {"metadata": {"name": NODE}, "status": {"addresses": [{"type": "InternalIP", "address": at}]}}
    ranges = RANGES[FAMILIES[FAMILIES.index(family)]]
    items = {
        "/api/v1/services": [pair[0] for pair in pairs],
        "/apis/discovery.k8s.io/v1/endpointslices": [pair[1] for pair in pairs],
        "/apis/networking.k8s.io/v1/servicecidrs": [
            {"metadata": {"name": "all"}, "spec": {"cidrs": [ranges.services]}}
        ],
        "/api/v1/nodes": [node],
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            await asyncio.Event().wait()
        listed: dict[str, Any] = {"metadata": {"resourceVersion": "1"}, "items": items[request.path]}
        return web.json_response(list_type(request.path) | listed)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    settings = ["--proxy-mode", mode, "--hostname-override", NODE, "--cluster-cidr", ranges.pods]
    source = ["--master", f"http://127.0.0.1:{runner.addresses[0][1]}"]
    kdns = [str(Path(sys.executable).parent / "kdns"), "--log-level", "warning", "proxy", *settings, *source]
    proxy = await asyncio.create_subprocess_exec(*kdns, stdout=asyncio.subprocess.PIPE)
    assert proxy.stdout  # noqa: S101 - asked for
    said = (await proxy.stdout.readline()).decode()
    if said != "ready\n":
        raise SystemExit(f"kdns proxy said {said!r}")
    os.sched_setaffinity(proxy.pid, cores)
    with suppress(PermissionError):
        os.sched_setscheduler(proxy.pid, os.SCHED_RR, os.sched_param(1))
    print("ready", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    proxy.terminate()
    await proxy.wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], frozenset(map(int, sys.argv[3].split(",")))))
