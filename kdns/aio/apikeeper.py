"""Service kubernetes leads to the API server for as long as that runs: deleted by somebody, it is made again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kdns import logs
from kdns.controlplane.api import Api
from kdns.controlplane.kinds import ENDPOINT_SLICE, ENDPOINTS, SERVICE
from kdns.controlplane.watch import Subscription
from kdns.errors import KdnsError

KEY = "default", "kubernetes"
_KINDS = (SERVICE, ENDPOINTS, ENDPOINT_SLICE)

log = logs.get(__name__)


class ApiKeeper:
    """Calls `make` whenever one of the three objects is gone. It keeps from its making until `close`.

    Differs: kube-apiserver looks every ten seconds; here people see it at once.
    """

    def __init__(self, api: Api, make: Callable[[], None]) -> None:
        self._api, self._make, self._waiting = api, make, False
        self._subscriptions: list[Subscription] = []
        self._follow()

    def close(self) -> None:
        """Keep no more."""
        for subscription in self._subscriptions:
            subscription.wake = _nothing
            subscription.close()

    def _follow(self) -> None:
        self.close()
        namespace, name = KEY
        selector = f"metadata.name={name}"
        self._subscriptions = [self._api.watch(kind, namespace, field_selector=selector) for kind in _KINDS]
        for subscription in self._subscriptions:
            subscription.wake = self._wake

    def _wake(self) -> None:
        """Look once this write is done."""
        if not self._waiting:
            self._waiting = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._waiting = False
        for subscription in self._subscriptions:
            subscription.take()
        if any(subscription.closed for subscription in self._subscriptions):
            self._follow()
        if all(self._api.store.get(kind, KEY) for kind in _KINDS):
            return
        try:
            self._make()
        except KdnsError as error:  # another Service has taken the address meanwhile
            log.warning("service kubernetes cannot be made again", reason=str(error))


def _nothing() -> None:
    """Nobody listens any more."""
