"""How far a write has to go: the modules and calls of kdns between a request on a socket and its answer."""

import json
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from rest_client import SERVICES, service, serving

import kdns

ROOT = str(Path(kdns.__file__).parent)
MODULES_MAX, CALLS_MAX = 28, 215
"""Begun at 54 and 656. Of the 28 modules, 7 are those of Services, 3 of the schema, 8 of the connection and of HTTP."""


def body(name: str) -> bytes:
    """The object as kubectl sends it."""
    obj = {"apiVersion": "v1", "kind": "Service", **service(name)}
    return json.dumps(obj, separators=(",", ":"), sort_keys=True).encode() + b"\n"


async def test_a_post_of_a_service_passes_few_modules_in_few_calls() -> None:
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            calls[frame.f_code.co_filename.removeprefix(ROOT)] += 1

    headers = {"Content_Type": "application/json", "User_Agent": "kubectl/v1.32"}
    async with serving() as client:
        await client("POST", SERVICES, body("first"), **headers)  # fills the caches
        earlier = sys.getprofile()
        sys.setprofile(count)
        try:
            status, stored, _ = await client("POST", SERVICES, body("web"), **headers)
        finally:
            sys.setprofile(earlier)
    assert (status, stored["spec"]["clusterIP"]) == (201, "10.96.1.2")
    assert len(calls) <= MODULES_MAX, sorted(calls)
    assert calls.total() <= CALLS_MAX, calls.most_common()
