"""A watch with much to send leaves turns of the event loop to other requests."""

import asyncio
from math import inf
from typing import Any, cast

import pytest
from aiohttp import web
from object_api import Api
from served_kinds import CATALOGUE

from kdns.controlplane.apimachinery.kinds import CONFIG_MAP
from kdns.controlplane.server.io.watch import WatchStream
from kdns.controlplane.server.representation import JSON, Renderer, Representation

SHAPES = [Representation(JSON), Representation(JSON, "PartialObjectMetadata")]
OBJECTS, VALUE = 60, "x" * 20_000  # 1.2 MB: five pieces


class Response:
    """Takes what is written at once, as a socket with room does."""

    turns, turns_between = 0, 0

    async def write(self, _data: bytes) -> None:
        self.turns_between, self.turns = self.turns_between + bool(self.turns), 0


async def durable() -> None:
    """A store in memory."""


@pytest.mark.parametrize("shape", SHAPES, ids=str)
async def test_others_have_turns_between_two_pieces(shape: Representation) -> None:
    api, response = Api(), Response()
    for number in range(OBJECTS):
        api.create(CONFIG_MAP, {"metadata": {"name": f"c{number}"}, "data": {"k": VALUE}})
    subscription = api.watch(CONFIG_MAP, resource_version="0")
    renderer = Renderer(CATALOGUE, CONFIG_MAP, shape)
    stream = WatchStream(subscription, renderer, api.registry, durable, 60.0, inf)
    sent = cast("Any", response)
    running = asyncio.create_task(stream.run(cast("web.BaseRequest", None), sent, ends_initial=False))
    async with asyncio.timeout(60):
        while subscription.waiting:
            response.turns += 1
            await asyncio.sleep(0)
    running.cancel()
    assert response.turns_between >= 3
