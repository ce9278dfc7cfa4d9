"""What all tests share: hypothesis does not judge speed, the machine may be busy, and repeats its examples each time.

`pytest --hypothesis-profile=explore` takes others.
"""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog
from hypothesis import settings
from structlog.testing import capture_logs

settings.register_profile("kdns", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("kdns")


@pytest.fixture(autouse=True)
def _default_logs() -> None:
    """No test meets the log settings that another test made."""
    structlog.reset_defaults()


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """What is logged from here on, line by line."""
    with capture_logs() as captured:
        yield captured
