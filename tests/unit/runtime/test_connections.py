"""Connections: how many there may be, and whose goes when one more comes."""

import errno
import re
import resource
import socket
import ssl
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from kdns.runtime.connections import (
    MAX_CONNECTIONS,
    RESERVED,
    ConnectionKind,
    Connections,
    bind_failure,
    raise_open_files_limit,
    shares,
)

SERVE, PROXY = (
    (ConnectionKind.DNS, ConnectionKind.SITES, ConnectionKind.UPSTREAMS),
    (ConnectionKind.NODE_SITES, ConnectionKind.RELAYS),
)


@pytest.mark.parametrize(
    ("limit", "kinds", "expected"),
    [
        (524288, SERVE, {ConnectionKind.DNS: 1000, ConnectionKind.SITES: 256, ConnectionKind.UPSTREAMS: 1000}),
        (1024, SERVE, {ConnectionKind.DNS: 256, ConnectionKind.SITES: 256, ConnectionKind.UPSTREAMS: 256}),
        (1024, PROXY, {ConnectionKind.NODE_SITES: 256, ConnectionKind.RELAYS: 512}),
        (4096, PROXY, {ConnectionKind.NODE_SITES: 256, ConnectionKind.RELAYS: 3584}),
        (64, SERVE, {ConnectionKind.DNS: 11, ConnectionKind.SITES: 10, ConnectionKind.UPSTREAMS: 11}),
    ],
)
def test_shares(limit: int, kinds: tuple[ConnectionKind, ...], expected: dict[ConnectionKind, int]) -> None:
    assert shares(limit, kinds) == expected


@pytest.mark.parametrize("limit", [1, 63, 256, 1024, 4095, 65536, 1 << 20])
def test_all_shares_leave_descriptors_for_the_rest(limit: int) -> None:
    granted = shares(limit, ConnectionKind)
    assert sum(granted.values()) <= limit - min(RESERVED, limit // 2)
    assert all(0 <= granted[kind] <= MAX_CONNECTIONS[kind] for kind in ConnectionKind)


def test_as_many_files_as_the_process_may_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        limit = raise_open_files_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == limit > 1024
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Pool:
    """Connections by name, `CLIENT/NUMBER`, and those that had to go."""

    def __init__(self, limit: int) -> None:
        self.connections, self.gone = Connections(ConnectionKind.DNS, limit), list[str]()

    def add(self, *names: str) -> list[bool]:
        return [self.connections.add(name, name.rpartition("/")[0], self._abort(name)) for name in names]

    def _abort(self, name: str) -> Callable[[], None]:
        return lambda: self.gone.append(name)


def test_the_one_that_is_idle_the_longest_goes() -> None:
    pool = Pool(3)
    assert pool.add("10.0.0.1/1", "10.0.0.1/2", "10.0.0.1/3") == [True] * 3
    pool.connections.touch("10.0.0.1/1")
    assert pool.add("10.0.0.1/4", "10.0.0.1/5", "10.0.0.1/6") == [True] * 3
    assert pool.gone == ["10.0.0.1/2", "10.0.0.1/3", "10.0.0.1/1"]
    assert len(pool.connections) == 3


def test_who_has_few_loses_none_to_who_has_many() -> None:
    pool = Pool(4)
    pool.add("10.0.0.1/1", "10.0.0.2/1", *(f"10.0.0.3/{number}" for number in range(100)))
    assert {name.rpartition("/")[0] for name in pool.gone} == {"10.0.0.3"}
    assert pool.add("10.0.0.4/1") == [True]
    assert pool.gone[-1] == "10.0.0.3/98"


def test_one_network_of_ipv6_is_one_client() -> None:
    pool = Pool(3)
    pool.add("2001:db8::1/1", "2001:db8:0:1::1/1", "2001:db8:0:1::2/1", "10.0.0.1/1")
    assert pool.gone == ["2001:db8:0:1::1/1"]


def test_one_that_is_at_work_stays() -> None:
    pool = Pool(2)
    pool.add("10.0.0.1/1", "10.0.0.1/2")
    pool.connections.occupy("10.0.0.1/1")
    pool.connections.occupy("10.0.0.1/2")
    assert pool.add("10.0.0.2/1") == [False]
    pool.connections.touch("10.0.0.1/1")
    assert pool.add("10.0.0.2/1") == [True]
    assert pool.gone == ["10.0.0.1/1"]
    pool.connections.remove("10.0.0.1/2")
    assert pool.add("10.0.0.2/2") == [True]
    assert len(pool.connections) == 2


def test_what_is_gone_is_forgotten_once() -> None:
    pool = Pool(2)
    pool.add("10.0.0.1/1", "10.0.0.1/2", "10.0.0.1/3")
    for name in ("10.0.0.1/1", "10.0.0.1/1", "10.0.0.1/2", "10.0.0.1/3", "10.0.0.1/9"):
        pool.connections.remove(name)
        pool.connections.touch(name)
        pool.connections.occupy(name)
    assert len(pool.connections) == 0
    assert pool.add("10.0.0.1/4") == [True]


def test_that_it_is_full_is_logged_once() -> None:
    with capture_logs() as logs:
        pool = Pool(2)
        pool.add(*(f"10.0.0.1/{number}" for number in range(1000)))
    assert [(log["event"], log["of"], log["maximum"]) for log in logs] == [
        ("too many connections: idle ones are closed", "DNS over TCP", 2)
    ]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EADDRINUSE, "error while attempting to bind"), "^Address already in use$"),
        (socket.gaierror(-2, "Name or service not known"), "^Name or service not known$"),
        (OSError("nothing more is known"), "^nothing more is known$"),
        (ssl.SSLError(1, "[SSL] unsafe legacy renegotiation"), r"^\[SSL\] unsafe legacy renegotiation$"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('::1', 1)"), "^Connection refused$"),
        (
            PermissionError(errno.EACCES, "Permission denied"),
            r"^ports below \d+ need the capability NET_BIND_SERVICE: take another port, .* AmbientCapabilities=",
        ),
    ],
)
def test_why_an_address_cannot_be_bound(error: OSError, reason: str) -> None:
    assert re.search(reason, bind_failure(error))
