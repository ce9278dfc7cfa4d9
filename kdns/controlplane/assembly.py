"""The assembly of an API server's state and rules, for every kind of cluster that kdns runs or computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.kinds.service.allocator import AllocatorMetrics, Choose
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.storage.store import Store

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes, util/rand
_SUFFIX_LENGTH: Final = 5


def assembled_api(
    config: ClusterConfig,
    store: Store,
    now_s: Callable[[], float],
    choose: Choose,
    choose_names: Choose,
    *,
    grace: bool = False,
    metrics: AllocatorMetrics | None = None,
    kinds: Catalogue | None = None,
) -> Registry:
    """Returns an API with the objects of the store.

    `choose(n)` is a random number below n, from which addresses and ports are chosen; uids and generated names come
    from `choose_names`.
    """

    def suffix() -> str:
        return "".join(_LETTERS[choose_names(len(_LETTERS))] for _ in range(_SUFFIX_LENGTH))

    def uid() -> str:
        return _uid(choose_names(1 << 128))

    return Registry(store, config, choose, now_s, uid, suffix, grace=grace, metrics=metrics, kinds=kinds)


def _uid(number: int) -> str:
    """Returns the UUID of version 4 (RFC 9562 §5.4) with the bits of a number."""
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
