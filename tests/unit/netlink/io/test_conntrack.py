"""UDP flows are deleted many at a time, and those that have gone meanwhile are not counted."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from kdns.netlink.conntrack import Flow
from kdns.netlink.io import conntrack
from kdns.netlink.protocol import Change


class Kernel:
    """Refuses flows by the error in their handle, 0 for those that it deletes."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def do_all(self, changes: Sequence[Change]) -> dict[int, int]:
        self.calls.append(len(changes))
        errors = (int.from_bytes(body[-4:], "big") for _, _, body in changes)
        return {at: error for at, error in enumerate(errors) if error}


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()

    @contextmanager
    def requests(_protocol: int) -> Iterator[Kernel]:
        yield made

    monkeypatch.setattr(conntrack, "Requests", requests)
    return made


def flows(*errors: int) -> list[Flow]:
    return [Flow(("10.96.0.10", 53), ("10.1.0.2", 53), error.to_bytes(4, "big")) for error in errors]


@pytest.mark.parametrize(
    ("errors", "deleted", "calls"),
    [((), 0, []), ((0,), 1, [1]), ((0, errno.ENOENT, 0), 2, [3]), ((0,) * 10_000, 10_000, [4096, 4096, 1808])],
)
def test_how_many_flows_were_deleted(kernel: Kernel, errors: Sequence[int], deleted: int, calls: list[int]) -> None:
    assert conntrack.delete_flows("IPv4", flows(*errors)) == deleted
    assert kernel.calls == calls


@pytest.mark.usefixtures("kernel")
def test_other_errors_are_raised() -> None:
    with pytest.raises(OSError, match="Device or resource busy"):
        conntrack.delete_flows("IPv4", flows(0, errno.ENOENT, errno.EBUSY))
