"""Requests, dumps, and many requests in one send, against a kernel of the test."""

import errno
import struct

import pytest

from kdns.netlink.io import requests
from kdns.netlink.io.requests import InterruptedDumpError, Requests
from kdns.netlink.protocol import Change, message
from kdns.netlink.uapi import (
    NFNL_MSG_BATCH_BEGIN,
    NFNL_MSG_BATCH_END,
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_DUMP_INTR,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
)

HEADER = struct.Struct("=IHHII")
BATCH = NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END


class Kernel:
    """Answers as the kernel does: each request that it refuses, by its payload, and each that asks for an answer."""

    def __init__(self) -> None:
        self.sends: list[list[tuple[int, int, bytes]]] = []
        self.answers: list[bytes] = []
        self.is_deaf = False

    def settimeout(self, _timeout_s: float) -> None: ...

    def setsockopt(self, *_option: int) -> None: ...

    def close(self) -> None: ...

    def send(self, buffer: bytes) -> None:
        some, at = [], 0
        while not self.is_deaf and at < len(buffer):
            length, kind, flags, sequence, _ = HEADER.unpack_from(buffer, at)
            body = buffer[at + HEADER.size : at + length]
            some.append((kind, flags, body))
            error = 0 if kind in BATCH else int.from_bytes(body[:4], "little")
            if error or flags & NLM_F_ACK:
                answer = struct.pack("=i", -error) + bytes(16)
                self.answers.append(HEADER.pack(HEADER.size + len(answer), NLMSG_ERROR, 0, sequence, 0) + answer)
            at += length
        self.sends.append(some)

    def recv_into(self, buffer: memoryview) -> int:
        answer = self.answers.pop(0)
        buffer[: len(answer)] = answer
        return len(answer)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(requests, "netlink_socket", lambda _protocol: made)
    return made


def change(error: int = 0, more: int = 0) -> Change:
    return 7, NLM_F_CREATE, error.to_bytes(4, "little") + bytes(more)


@pytest.mark.parametrize(
    ("changes", "refused", "sends"),
    [
        ([], {}, []),
        ([change()], {}, [1]),
        ([change(errno.EEXIST)], {0: errno.EEXIST}, [1]),
        ([change(), change(errno.ENOENT), change()], {1: errno.ENOENT}, [3]),
        ([change(), change(errno.EINVAL)], {1: errno.EINVAL}, [2]),
        (
            [change(errno.EEXIST if at in {0, 255, 256, 599} else 0) for at in range(600)],
            dict.fromkeys((0, 255, 256, 599), errno.EEXIST),
            [256, 256, 88],
        ),
        ([change(more=60_000)] * 3, {}, [1, 1, 1]),
        ([change(more=40_000)] * 3, {}, [2, 1]),
        ([change(more=200_000)], {}, [1]),
    ],
)
def test_each_request_is_for_itself(
    changes: list[Change], refused: dict[int, int], sends: list[int], kernel: Kernel
) -> None:
    assert Requests(0).do_all(changes) == refused
    assert [len(send) for send in kernel.sends] == sends
    assert [each[2] for send in kernel.sends for each in send] == [body for _, _, body in changes]
    for send in kernel.sends:
        asks = [flags & NLM_F_ACK for _, flags, _ in send]
        assert asks == [0] * (len(send) - 1) + [NLM_F_ACK]
        assert {(kind, flags & ~NLM_F_ACK) for kind, flags, _ in send} == {(7, NLM_F_REQUEST | NLM_F_CREATE)}


def test_who_may_not_change_anything_is_not_answered_further(kernel: Kernel) -> None:
    made = Requests(0)
    kernel.answers.append(HEADER.pack(36, NLMSG_ERROR, 0, 1, 0) + struct.pack("=i", -errno.EPERM) + bytes(16))
    kernel.is_deaf = True
    with pytest.raises(PermissionError):
        made.do_all([change(), change()])


def reply(kind: int, body: bytes = b"", flags: int = 0, sequence: int = 1) -> bytes:
    return message(kind, flags, sequence, body)


def done(error: int = 0) -> bytes:
    return reply(NLMSG_DONE, struct.pack("=i", -error))


@pytest.mark.parametrize(
    ("datagrams", "received", "error"),
    [
        ([done()], [], 0),
        ([reply(9, b"a---") + reply(9, b"b---"), reply(9, b"c---") + done()], [b"a---", b"c---"], 0),
        ([reply(9, b"old-", sequence=0) + reply(9, b"a---"), done()], [b"a---"], 0),
        ([reply(9, b"a---"), done(errno.ENOMEM)], [], errno.ENOMEM),
        ([reply(NLMSG_ERROR, struct.pack("=i", -errno.EPERM))], [], errno.EPERM),
    ],
)
def test_a_dump_ends_with_its_error(datagrams: list[bytes], received: list[bytes], error: int, kernel: Kernel) -> None:
    kernel.is_deaf = True
    kernel.answers += datagrams
    if error:
        with pytest.raises(OSError, match=r".") as raised:
            Requests(0).dump(9, b"", bytes)
        assert raised.value.errno == error
    else:
        assert Requests(0).dump(9, b"", lambda body: None if body == b"b---" else body) == received


def test_a_dump_of_what_changes_meanwhile_is_repeated(kernel: Kernel) -> None:
    kernel.is_deaf = True
    kernel.answers += [reply(9, b"a---", NLM_F_DUMP_INTR), reply(9, b"b---") + done()]
    kernel.answers += [reply(9, b"a---", sequence=2), reply(NLMSG_DONE, struct.pack("=i", -errno.EINTR), sequence=2)]
    kernel.answers += [reply(9, b"c---", sequence=3) + reply(NLMSG_DONE, bytes(4), sequence=3)]
    assert Requests(0).dump(9, b"", bytes) == [b"c---"]
    kernel.answers += [
        reply(9, b"a---", NLM_F_DUMP_INTR, at) + reply(NLMSG_DONE, bytes(4), 0, at) for at in range(1, 100)
    ]
    with pytest.raises(InterruptedDumpError):
        Requests(0).dump(9, b"", bytes)


@pytest.mark.parametrize(
    ("datagrams", "answer", "error"),
    [
        ([reply(9, b"yes-"), reply(NLMSG_ERROR, bytes(4))], b"yes-", 0),
        ([reply(NLMSG_ERROR, bytes(4))], b"", errno.ENODATA),
        ([reply(NLMSG_ERROR, struct.pack("=i", -errno.ENOENT))], b"", errno.ENOENT),
    ],
)
def test_a_request_has_an_answer_or_an_error(datagrams: list[bytes], answer: bytes, error: int, kernel: Kernel) -> None:
    kernel.is_deaf = True
    kernel.answers += datagrams
    if error:
        with pytest.raises(OSError, match=r".") as raised:
            Requests(0).ask(9, b"")
        assert raised.value.errno == error
    else:
        assert Requests(0).ask(9, b"") == answer


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_transaction_fails_with_its_first_error(*, is_refused: bool, kernel: Kernel) -> None:
    changes = [(7, errno.EEXIST.to_bytes(4, "little")), (7, bytes(4))] if is_refused else [(7, bytes(4))] * 2
    if is_refused:
        with pytest.raises(FileExistsError):
            Requests(0).transact(10, changes)
    else:
        Requests(0).transact(10, changes)
    ((begin, *sent, end),) = kernel.sends
    assert [flags & NLM_F_ACK for _, flags, _ in sent] == [0, NLM_F_ACK]
    assert (begin[0], end[0]) == BATCH
