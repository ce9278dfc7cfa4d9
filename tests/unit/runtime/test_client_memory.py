"""What clients hold: their shares of bytes and pending queries, who is closed, and when connections are read again."""

from dataclasses import dataclass, field

from fake_api import until

from kdns.runtime.client_memory import (
    MAX_CONNECTION_BYTES,
    MIN_CLIENT_BYTES,
    PENDING_COPIES,
    PENDING_COST_BYTES,
    Account,
    ClientMemory,
    pending_bytes,
)

MIB = 1 << 20
PACKET = bytes(1000)


@dataclass
class Connection:
    """A connection that notes what is done to it."""

    memory: ClientMemory
    address: str
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.account: Account = self.memory.account(self.address, self)

    def evict(self) -> None:
        self.done.append("evicted")
        self.account.close()

    def resume(self) -> None:
        self.done.append("resumed")


def test_a_pending_query_counts_with_its_copies() -> None:
    memory = ClientMemory()
    connection = Connection(memory, "192.0.2.1")
    assert connection.account.take("192.0.2.1", PACKET)
    assert memory.take("192.0.2.2", PACKET)
    assert pending_bytes(PACKET) == PENDING_COST_BYTES + PENDING_COPIES * 1000
    assert memory.held_bytes == 2 * pending_bytes(PACKET)
    connection.account.release("192.0.2.1", PACKET)
    memory.release("192.0.2.2", PACKET)
    assert (memory.held_bytes, connection.account.size_bytes) == (0, 0)


def test_a_client_has_at_most_half_of_the_places() -> None:
    memory = ClientMemory(max_pending=10)
    assert [memory.take("192.0.2.1", b"") for _ in range(6)] == [True] * 5 + [False]
    assert [memory.take("192.0.2.2", b"") for _ in range(4)] == [True] * 3 + [False]
    for _ in range(5):
        memory.release("192.0.2.1", b"")
    assert memory.take("192.0.2.2", b"")


def test_a_client_has_at_most_half_of_the_bytes_over_all_connections() -> None:
    memory = ClientMemory(max_bytes=MIB)
    connections = [Connection(memory, f"2001:db8::{number}") for number in range(3)]  # of one /64
    other = Connection(memory, "192.0.2.1")
    for connection in connections:
        assert connection.account.has_room
        connection.account.hold(3 * MIB // 16)
    assert not any(connection.account.has_room for connection in connections)
    assert not connections[0].account.take("2001:db8::1", b"")
    assert not memory.take("2001:db8::3", b"")
    assert other.account.has_room
    assert other.account.take("192.0.2.1", PACKET)
    connections[0].account.hold(0)
    assert connections[1].account.has_room


def test_one_connection_has_a_bound_of_its_own() -> None:
    memory = ClientMemory()
    connection, other = Connection(memory, "192.0.2.1"), Connection(memory, "192.0.2.1")
    connection.account.hold(MAX_CONNECTION_BYTES - pending_bytes(PACKET))
    rooms = [connection.account.has_room]
    assert connection.account.take("192.0.2.1", PACKET)
    rooms.append(connection.account.has_room)
    assert rooms == [True, False]
    assert other.account.has_room


def test_over_the_limit_the_largest_connection_of_the_largest_client_is_closed() -> None:
    memory = ClientMemory(max_bytes=MIB)
    small, large = Connection(memory, "192.0.2.1"), Connection(memory, "192.0.2.1")
    alone = Connection(memory, "192.0.2.2")
    small.account.hold(MIB // 4)
    large.account.hold(MIB // 3)
    alone.account.hold(MIB // 2)
    assert (small.done, large.done, alone.done) == ([], ["evicted"], [])
    assert memory.held_bytes == MIB // 4 + MIB // 2


def test_a_client_may_always_hold_a_message() -> None:
    memory = ClientMemory(max_bytes=MIB)
    greedy = [Connection(memory, f"192.0.2.{number}") for number in range(8)]
    for connection in greedy:
        connection.account.hold(MIB // 8)
    late = Connection(memory, "198.51.100.1")
    assert late.account.has_room
    late.account.hold(MIN_CLIENT_BYTES - 1)
    assert late.done == []
    assert [connection.done for connection in greedy].count(["evicted"]) == 1


def test_queries_of_a_closed_connection_keep_their_places() -> None:
    memory = ClientMemory(max_pending=2)
    connection = Connection(memory, "192.0.2.1")
    assert connection.account.take("192.0.2.1", PACKET)
    connection.account.close()
    connection.account.close()
    assert memory.held_bytes == 0
    assert not memory.take("192.0.2.1", b"")
    connection.account.release("192.0.2.1", PACKET)
    connection.account.hold(1000)
    assert memory.held_bytes == 0
    assert memory.take("192.0.2.1", b"")


async def test_a_paused_connection_is_resumed_when_there_is_room() -> None:
    memory = ClientMemory(max_bytes=MIB)
    paused, closed, full = (Connection(memory, "192.0.2.1") for _ in range(3))
    full.account.hold(MIB // 2)
    paused.account.pause()
    closed.account.pause()
    closed.account.close()
    assert not paused.account.has_room
    full.account.hold(0)
    await until(lambda: paused.done == ["resumed"])
    assert closed.done == []
