"""The world, built once for the tests of a file, and the loop that it lives in."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from world import World


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture(scope="session")
def world(loop: asyncio.AbstractEventLoop) -> Iterator[World]:
    made = World(os.environ.get("PROTOCOLS", "TCP UDP").split())
    made.build()
    loop.run_until_complete(made.serve())
    loop.run_until_complete(made.settle())
    yield made
    loop.run_until_complete(made.close())
