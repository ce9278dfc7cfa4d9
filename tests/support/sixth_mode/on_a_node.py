"""Prints what a node does with the mode: the mode that runs, what is removed, and the status page."""

import asyncio
import re
import socket
import sys
from functools import partial

from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from fake_modes import answers

import sixth_mode.row  # noqa: F401 - first
from kdns import logs
from kdns.cluster.io.informer import FollowStats
from kdns.cluster.source import Source
from kdns.cluster.state import State
from kdns.proxy.modes import MODES
from kdns.proxy.nftables.io.counters import nftables_counters
from kdns.proxy.node.io.health import ProxyHealth
from kdns.proxy.node.io.metrics import MetricSources
from kdns.proxy.settings.settings import Settings
from kdns.proxy.status.io.site import ProxyStatus
from kdns.proxy.sync.io.conntrack import ConntrackReconciler
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.proxy.sync.schedule import SyncTiming
from kdns.proxy.takeover.io.choice import choice
from kdns.proxy.takeover.io.modes import clean_ups, runtime
from kdns.proxy.takeover.io.takeover import Takeover, remove_everything
from kdns.status.io.watched import Watched
from sixth_mode.io.clean_up import GREETINGS
from sixth_mode.mode import SixthSettings


async def _page() -> str:
    state = State()
    running = await runtime("sixth").start(Settings(mode="sixth"))
    runner = SyncRunner(state, running, lambda: None, SyncTiming(0.0))
    counters = nftables_counters()
    sources = MetricSources(
        MODES["sixth"],
        "sixth",
        counters,
        runner,
        ProxyHealth(runner, lambda: None),
        FollowStats(),
        ConntrackReconciler(None),
    )
    pages = ProxyStatus("here", Watched(Source(), state, FollowStats()), sources).pages()
    response = await pages["/status"](make_mocked_request("GET", "/status", headers={"Host": "127.0.0.1"}))
    assert isinstance(response, web.Response)
    return str(response.text)


async def _node(greeting: str) -> None:
    settings = Settings(mode="sixth").with_section(SixthSettings(greeting=greeting))
    chosen = await choice(settings, runtime)
    logs.configure("error")
    print("mode", chosen.mode.name, chosen.fallback)
    if chosen.mode.name != "sixth":
        return
    own = partial(socket.socket, socket.AF_UNIX)
    others = [clean_up for clean_up in clean_ups() if clean_up.remove.__module__.startswith("sixth_mode")]
    async with Takeover(others, keep_rules=True, is_kube_proxy=answers([""]), own=own) as takeover:
        await takeover.start(chosen.runtime, chosen.settings)
        before = [*GREETINGS]
        await takeover.clean_up(settings)
        print("removed", *(greeting for greeting in before if greeting not in GREETINGS))
        print("left", *GREETINGS)
    removed = await remove_everything(settings, others, is_kube_proxy=answers([""]), own=own, patience_s=0.0)
    print("removed by --cleanup", *removed)
    print("page", *re.findall(r"<dt>Mode</dt>\s*<dd>(.*?)</dd>", await _page()))


asyncio.run(_node(*sys.argv[1:]))
