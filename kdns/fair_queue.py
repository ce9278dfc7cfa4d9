"""Fair queueing: items are taken in turn, one per client (RFC 970 §4).

A client's queue is at most as long as the room that is left for all others (dynamic thresholds, Choudhury and Hahne
1998). So a client that sends many requests fills at most half of the room, and gains nothing by more requests. A client
that sends few finds room and is served soon.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

from kdns.net import client_of

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Up to `max_items`, and so up to as many clients; `by_client` is empty where nothing waits."""

    def __init__(self, max_items: int) -> None:
        self.by_client: OrderedDict[str | bytes, deque[T]] = OrderedDict()
        self._room = max_items

    def put(self, address: str, item: T) -> bool:
        """False if the queue of the client at `address` is full."""
        client = client_of(address)
        queue = self.by_client.get(client)
        if (len(queue) if queue else 0) >= self._room:
            return False
        if queue is None:
            queue = self.by_client[client] = deque()
        queue.append(item)
        self._room -= 1
        return True

    def take(self) -> T:
        """The oldest item of the client whose turn it is; KeyError where nothing waits."""
        client, queue = self.by_client.popitem(last=False)
        item = queue.popleft()
        if queue:
            self.by_client[client] = queue
        self._room += 1
        return item


class FairShares:
    """Up to `max_places`; a client may have as many as are left for all others, as in the queue."""

    def __init__(self, max_places: int) -> None:
        self._room = max_places
        self._by_client: dict[str | bytes, int] = {}

    def take(self, address: str) -> bool:
        """False if the client at `address` has its share."""
        client = client_of(address)
        places = self._by_client.get(client, 0)
        if places >= self._room:
            return False
        self._by_client[client] = places + 1
        self._room -= 1
        return True

    def release(self, address: str) -> None:
        client = client_of(address)
        places = self._by_client[client] - 1
        if places:
            self._by_client[client] = places
        else:
            del self._by_client[client]
        self._room += 1
