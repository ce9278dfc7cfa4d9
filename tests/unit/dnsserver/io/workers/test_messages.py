"""Messages between the server and a worker are decoded as they were encoded."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdns.dnsserver.answers.answer import ResponseKind
from kdns.dnsserver.io.workers.messages import (
    Attach,
    AttachAck,
    Clear,
    Detach,
    DetachAck,
    Forget,
    Hello,
    Keep,
    KindCount,
    ListenerCounts,
    LookAtNext,
    Message,
    Miss,
    Report,
    ReportNow,
    Sample,
    Tail,
    framed,
    messages,
)

KIND = ResponseKind("example.org.", 1, 0, True, 40, 56, "records", "internal")
KEEP = Keep(1, 4, b"key", b"h" * 10, 29, (b"one", b"two"), 0, KIND, 3, 0, inf, None, (), inf, (-(2**62), 5))
MESSAGES: tuple[Message, ...] = (
    Hello(1, "info", "json"),
    Attach(1, 2, 6),
    Detach(1),
    KEEP,
    Keep(1, 6, b"key", b"h" * 10, 29, (), 9, KIND, 3, 8, 12.5, 11.5, (b"\0" * 6,), 99.0, ()),
    Tail(1, 9, b"\0\xff"),
    Forget(1, (hash("a"), hash(("b", 1)))),
    Clear(1),
    ReportNow(4),
    LookAtNext(),
    Miss(1, b"\0" * 4096, ("2001:db8::1", 53, 0, 2), 1.25),
    Miss(1, b"", ("192.0.2.1", 65535), 1.25, is_sample=True),
    AttachAck(1),
    DetachAck(1),
    Report(4, (ListenerCounts(1, (0, 5), 0.25, 1, 2),), (KindCount(1, 4, KIND, 7),), {8: 2}, {8: 1}),
    Sample(b"query", "192.0.2.1", b"response"),
)


def decoded(batch: bytes) -> list[Message]:
    return list(messages(memoryview(batch)))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_decoded_as_it_was_encoded(message: Message) -> None:
    (found,) = decoded(framed(message))
    assert found == message
    assert type(found) is type(message)


@given(st.lists(st.sampled_from(MESSAGES), max_size=20))
def test_a_batch_has_its_messages_in_order(sent: list[Message]) -> None:
    assert decoded(b"".join(map(framed, sent))) == sent


def test_kinds_are_decoded_as_tuples_that_equal_those_of_the_table() -> None:
    (found,) = decoded(framed(KEEP))
    assert isinstance(found, Keep)
    assert {found.kind: 1}[KIND] == 1
