"""A REST server over a real socket for each test."""

from collections.abc import AsyncIterator

import pytest
from rest_client import Client, serving


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with serving() as client:
        yield client
