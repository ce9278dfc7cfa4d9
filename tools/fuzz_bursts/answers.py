"""Random answers for the tables of both readers, and answers that only a defect could put there."""

from __future__ import annotations

import random
from collections.abc import Callable
from struct import pack
from typing import Final

from kdns.answers.answer import Answer, compile_answer, response_kind
from kdns.answers.order import Order
from kdns.answers.response import Response
from kdns.dns.query import HEADER_BYTES, Query, read_query
from kdns.dns.rrset import RRset
from kdns.dns.types import A

_BODY_BYTES: Final = (*(0, 1, 16, 60, 100, 300) * 50, 4000, 65_535)  # the kernel sends no message of the last size


def answer_to(packet: bytes, key: bytes, chance: random.Random, now_s: float) -> Answer:
    """Returns a random answer to a packet with this key: addresses whose TTLs count down or not, or any bytes."""
    query = read_query(packet)
    if isinstance(query, Query) and query.has_key and chance.random() < 0.5:
        rdata = tuple(chance.randbytes(4) for _ in range(chance.randint(1, 5)))
        aged_from_s = now_s - chance.randint(0, 40) if chance.random() < 0.5 else None
        records = (RRset(query.name, A, 30, rdata),)
        response = Response(answer=records, order=Order(rotate=True), aged_from_s=aged_from_s)
        answer = compile_answer(query, response, 512, ".", now_s=now_s)
        answer.head, answer.bodies = _copy(answer.head), tuple(map(_copy, answer.bodies))
        return answer
    end = chance.randint(HEADER_BYTES, len(key) + 2)
    bodies = tuple(chance.randbytes(chance.choice(_BODY_BYTES)) for _ in range(chance.choice((1, 1, 2, 5))))
    head = pack("!HHHHH", chance.getrandbits(16), *chance.choices((0, 1, 300), k=4))
    return Answer(head, end, bodies, response_kind(".", 1, 0, False, len(packet), end + len(bodies[0])))


def _copy(octets: bytes) -> bytes:
    """Returns the same bytes as an object of their own, whose references are the answer's only."""
    return bytes(bytearray(octets))


class Renewing(Answer):
    """An answer whose renewal does something else."""

    deed: Callable[[], object] = bool

    def renew(self, now_s: float) -> bool:
        """See Answer."""
        del now_s
        return bool(self.deed())


def defective_answers(deeds: tuple[Callable[[], object], ...]) -> list[Answer]:
    """Returns answers whose fields have other types and values than those of any Answer, and one for each deed."""
    kind = response_kind(".", 1, 0, False, 30, 40)
    defects: tuple[dict[str, object], ...] = (
        {"head": b"short"},
        {"head": b"longer than a head"},
        {"head": None},
        {"question_end": 1 << 20},
        {"question_end": -1},
        {"question_end": 1 << 80},
        {"bodies": ()},
        {"bodies": ("text",)},
        {"bodies": None},
        {"hits": -3},
        {"hits": (1 << 63) - 1},
        {"hits": "text"},
        {"until_s": "text"},
        {"until_s": 1 << 5000},
    )
    fields = {"head": bytes(10), "question_end": HEADER_BYTES, "bodies": (b"body",), "kind": kind}
    answers = [Answer(**fields | defect) for defect in defects]  # type: ignore[arg-type] # it is the defect
    return answers + [Renewing(**fields, until_s=0.0, deed=deed) for deed in deeds]  # type: ignore[arg-type] # a table
