"""Who owns the rules is known also of a socket that takes no connections."""

import os
import socket
from collections.abc import Iterator

import pytest

from kdns.errors import KdnsError
from kdns.netlink.io.unix_sockets import user_of
from kdns.proxy.takeover.io import owner


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(owner, "NAME", f"\0kdns/test/{os.getpid()}")
    return owner.NAME


@pytest.fixture(params=["bound", "full"])
def other(request: pytest.FixtureRequest, name: str) -> Iterator[str]:
    """A socket that has the name, and takes no connection."""
    with socket.socket(socket.AF_UNIX) as made, socket.socket(socket.AF_UNIX) as waiting:
        made.bind(name)
        if request.param == "full":
            made.listen(0)
            waiting.connect(name)
        yield name


def test_the_own_user_is_refused(other: str) -> None:
    assert other
    with pytest.raises(KdnsError, match="serves this network namespace already"):
        owner.own_network()


def test_another_user_does_not_count(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "user_of", lambda name: 65534 if name == other else None)
    owner.own_network().close()


def test_the_kernel_says_whose_it_is(other: str) -> None:
    assert user_of(other) in {os.getuid(), None}
