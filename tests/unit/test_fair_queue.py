"""Who asks little is the next but few, however much others ask."""

import pytest

from kdns.dnsserver.io.stream import MAX_WAITING
from kdns.fair_queue import FairQueue, FairShares


def taken(queue: FairQueue[str]) -> str:
    items = []
    while queue.by_client:
        items.append(queue.take())
    return " ".join(items)


def test_clients_take_turns_and_each_keeps_its_order() -> None:
    queue = FairQueue[str](100)
    assert not queue.by_client
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        assert queue.put(item[0], item)
    assert taken(queue) == "a1 b1 c1 a2 b2 a3"
    assert queue.put("a", "a4")
    assert taken(queue) == "a4"
    with pytest.raises(KeyError):
        queue.take()


def test_who_asks_much_leaves_room() -> None:
    queue = FairQueue[str](100)
    assert [queue.put("flood", "f") for _ in range(1000)].count(True) == 50
    assert [queue.put("second flood", "s") for _ in range(1000)].count(True) == 25
    assert [queue.put(f"client {number}", "c") for number in range(20)].count(True) == 20
    assert taken(queue).split()[: 2 + 20].count("c") == 20
    assert queue.put("flood", "f")


def test_no_more_clients_than_items() -> None:
    queue = FairQueue[str](100)
    assert [queue.put(f"10.0.{number // 256}.{number % 256}", "x") for number in range(1000)].count(True) == 100


def test_a_thousand_clients_behind_one_address_may_ask_for_a_and_aaaa() -> None:
    queue = FairQueue[int](MAX_WAITING)
    assert all(queue.put("192.0.2.1", number) for number in range(2000))


def test_who_waits_much_leaves_places() -> None:
    shares = FairShares(100)
    assert [shares.take("flood") for _ in range(1000)].count(True) == 50
    assert [shares.take(f"client {number}") for number in range(20)].count(True) == 20
    assert not shares.take("flood")
    for _ in range(50):
        shares.release("flood")
    assert [shares.take("client 0") for _ in range(1000)].count(True) == 40
