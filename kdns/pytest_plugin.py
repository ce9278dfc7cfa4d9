"""The pytest plugin: the fixture `kdns_cluster`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kdns.testing import Cluster, Manifests


@pytest.fixture
def kdns_manifests() -> Sequence[Manifests]:
    """What `kdns_cluster` starts with; to be overridden."""
    return ()


@pytest.fixture
def kdns_cluster(kdns_manifests: Sequence[Manifests]) -> Iterator[Cluster]:
    """A `kdns.testing.Cluster` of its own for each test, with the manifests of `kdns_manifests`."""
    from kdns.testing import cluster  # noqa: PLC0415 - every run of pytest imports the plugin

    with cluster(*kdns_manifests) as made:
        yield made
