"""Queries as sent to an upstream, and the messages that answer them."""

from __future__ import annotations

from typing import Final

from kdns.dns.query import HEADER_BYTES, HOP_BY_HOP, Query

_CASE: Final = bytes(0x20 if chr(byte).isalpha() and byte < 0x80 else 0 for byte in range(256))
"""Byte → the bit that is the case of a letter, 0 for others. Lengths of labels, up to 63, are not letters."""
_ONE_QUESTION: Final = b"\x00\x01"
_TYPE_AND_CLASS_BYTES: Final = 4


def body_of(query: Query) -> bytes:
    """The bytes after the id, without hop-by-hop options and records such as a signature."""
    if query.is_plain:
        return query.packet[2:]
    edns = query.edns
    if edns is not None:
        edns = edns._replace(options=tuple(option for option in edns.options if option[0] not in HOP_BY_HOP))
    return query.changed(edns=edns).packet[2:]


def question_of(query: Query) -> bytes:
    return query.packet[HEADER_BYTES : query.question_end]


def in_random_case(question: bytes, entropy: bytes) -> bytes:
    """A bit of `entropy` decides the case of each letter: forgers have to guess it (draft-vixie-dnsext-dns0x20)."""
    name = question[:-_TYPE_AND_CLASS_BYTES]
    size = len(name)
    letters = int.from_bytes(name.translate(_CASE)) & int.from_bytes(entropy[:size])
    return (int.from_bytes(name) ^ letters).to_bytes(size) + question[size:]


def response_to(query: Query, message: bytes) -> bytes:
    """With the query's id, and the query's spelling wherever the message repeats the question name."""
    question = question_of(query)
    end = HEADER_BYTES + len(question)
    sent = message[HEADER_BYTES:end]
    if sent == question or not repeats_question(message, question):
        return query.packet[:2] + message[2:]
    own = b"".join((query.packet[:2], message[2:HEADER_BYTES], question, message[end:]))
    return own.replace(sent[:-_TYPE_AND_CLASS_BYTES], question[:-_TYPE_AND_CLASS_BYTES])


def is_response(message: bytes) -> bool:
    return len(message) >= HEADER_BYTES and message[2] & 0xF8 == 0x80 and message[4:6] <= _ONE_QUESTION


def has_question(message: bytes) -> bool:
    """Some servers' errors do not repeat the question."""
    return message[4:6] == _ONE_QUESTION


def repeats_question(message: bytes, question: bytes) -> bool:
    """Ignores the case of letters."""
    name_end = HEADER_BYTES + len(question) - _TYPE_AND_CLASS_BYTES
    return (
        has_question(message)
        and message.startswith(question[-_TYPE_AND_CLASS_BYTES:], name_end)
        and message[HEADER_BYTES:name_end].lower() == question[:-_TYPE_AND_CLASS_BYTES].lower()
    )
