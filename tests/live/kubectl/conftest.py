"""kubectl, and an API of its own for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubectl_api import KUBECTL, Kubectl, served


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    if not KUBECTL:
        pytest.skip("kubectl is not on PATH: install it to run these tests")
    async with served(tmp_path) as kubectl:
        yield kubectl
