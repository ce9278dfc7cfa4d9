"""The pages of a node's dataplane for whoever looks after it: /statusz, /flagz and /metrics/slis."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest

import kdns
from kdns.proxy.settings.flags import FLAGS, all_flags, flag_values
from kdns.runtime.connections import ConnectionKind, Connections
from kdns.runtime.http.server import Handler
from kdns.runtime.http.sites import slis, start_site
from kdns.runtime.http.zpages import WARNING, HealthChecks, accepted_version, zpages


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    text: str
    kind: str


@asynccontextmanager
async def site(paths: dict[str, Handler]) -> AsyncIterator[str]:
    made = await start_site("127.0.0.1", 0, paths, Connections(ConnectionKind.NODE_SITES))
    try:
        yield f"http://127.0.0.1:{made.address[1]}"
    finally:
        await made.close()


async def get(url: str, accept: str = "") -> Answer:
    headers = {"Accept": accept} if accept else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return Answer(response.status, await response.text(), response.content_type)


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        ("", ""),
        ("*/*", ""),
        ("text/plain", ""),
        ("text/html, text/*;q=0.8", ""),
        ("application/json;v=v1beta1;g=config.k8s.io;as=Statusz", "v1beta1"),
        ("application/json; v=v1alpha1; g=config.k8s.io; as=Statusz", "v1alpha1"),
        ("application/json, */*", ""),
        ("application/json", None),
        ("application/json;v=v1beta1;g=config.k8s.io", None),
        ("application/json;v=v7;g=config.k8s.io;as=Statusz", None),
        ("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", None),
        ("application/xml", None),
    ],
)
def test_accepted_version(accept: str, version: str | None) -> None:
    assert accepted_version(accept, "Statusz") == version


async def test_status_and_flags() -> None:
    clock_s = 1_792_000_000.0
    flags = all_flags(flag_values({"v": "2", "nodeport-addresses": "10.0.0.0/8,fd00::/8"}))
    paths = zpages(flags, lambda: ["/metrics", "/metrics/slis", "/healthz"], lambda: clock_s)
    clock_s += 3723.9
    async with site(paths) as url:
        told = await get(f"{url}/statusz")
        assert (told.status, told.kind) == (200, "text/plain")
        assert told.text.splitlines() == [
            "",
            "kdns statusz",
            WARNING,
            "",
            "Started: Wed Oct 14 17:46:40 UTC 2026",
            "Up: 1 hr 02 min 03 sec",
            *re.findall("Python version: .*", told.text),
            f"Binary version: {kdns.__version__}",
            "Emulation version: 1.36",
            "Paths: /healthz /metrics",
        ]
        told = await get(f"{url}/statusz", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz")
        assert json.loads(told.text) == {
            "kind": "Statusz",
            "apiVersion": "config.k8s.io/v1beta1",
            "metadata": {"name": "kdns"},
            "startTime": "2026-10-14T17:46:40Z",
            "uptimeSeconds": 3723,
            "binaryVersion": kdns.__version__,
            "emulationVersion": "1.36",
            "paths": ["/healthz", "/metrics"],
        }
        told = await get(f"{url}/flagz")
        assert told.text.startswith(f"\nkdns flags\n{WARNING}\n\nbind-address=0.0.0.0\n")
        assert "\nv=2\n" in told.text
        assert "\nnodeport-addresses=[10.0.0.0/8,fd00::/8]\n" in told.text
        assert "\nconntrack-tcp-timeout-established=24h0m0s\n" in told.text
        found = json.loads((await get(f"{url}/flagz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz")).text)
        assert found["flags"].keys() == {flag.name for flag in FLAGS}
        refused = await get(f"{url}/flagz", "application/json")
        assert refused.status == 406
        assert "application/json;v=v1beta1;g=config.k8s.io;as=Flagz" in refused.text


async def test_health_checks_are_counted() -> None:
    checks = HealthChecks()
    async with site({"/healthz": checks.answer, "/metrics/slis": slis(checks)}) as url:
        assert "kubernetes_healthcheck{" not in (await get(f"{url}/metrics/slis")).text
        assert (await get(f"{url}/healthz")).text == "ok"
        assert (await get(f"{url}/healthz?verbose")).text == "[+]ping ok\nhealthz check passed\n"
        lines = (await get(f"{url}/metrics/slis")).text.splitlines()
    assert 'kubernetes_healthcheck{name="ping",type="healthz"} 1.0' in lines
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2.0' in lines
