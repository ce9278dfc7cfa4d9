"""Requests of DNS over HTTPS: which hold a query, what is said to others, and how long answers may be cached."""

from base64 import urlsafe_b64encode
from dataclasses import replace

import pytest

from kdns.dns.message import query
from kdns.dns.types import A
from kdns.dnsserver.doh.exchange import MEDIA_TYPE, HttpRequest, Refusal, max_age_s, query_of

QUERY = query("a.test.", A)
TEXT = urlsafe_b64encode(QUERY).decode().rstrip("=")
JUNK = ("!", "~", ".", "%20", "%0A", "%00", "+", "/", "%2B", "%2F", "=", "==", "%3D", ":", "*", "\u00e4", "%FF", "%")
HEAD = b"\0\0\x84\0\0\1"
QUESTION = b"\1a\4test\0\0\1\0\1"


def post(**fields: object) -> HttpRequest:
    return replace(HttpRequest(1, "POST", "/dns-query", MEDIA_TYPE, QUERY), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post(), 200),
        (post(content_type=f"{MEDIA_TYPE.upper()}; x=y"), 200),
        (post(target="/dns-query?dns=AAAA"), 200),
        (HttpRequest(1, "GET", f"/dns-query?dns={TEXT}"), 200),
        (HttpRequest(1, "GET", f"/dns-query?x=1&dns={TEXT}&y"), 200),
        (HttpRequest(1, "GET", f"/dns-query?d%6es={TEXT.replace('A', '%41')}"), 200),
        (post(content_type="text/plain"), 415),
        (post(content_type=""), 415),
        (post(body=b""), 400),
        (post(is_cut=True), 413),
        (post(method="PUT"), 405),
        (post(method="HEAD"), 405),
        (post(target="/"), 404),
        (post(target="/dns-query/"), 404),
        (HttpRequest(1, "GET", "/dns-query"), 400),
        (HttpRequest(1, "GET", "/dns-query?dns="), 400),
        (HttpRequest(1, "GET", f"/dns-query?dns={TEXT}&dns={TEXT}"), 400),
        (HttpRequest(1, "GET", f"/dns-query?dns={TEXT}&d%6es={TEXT}"), 400),
        (HttpRequest(1, "GET", f"/dns-query?DNS={TEXT}"), 400),
        (HttpRequest(1, "GET", f"/dns-query;dns={TEXT}"), 404),
        *((HttpRequest(1, "GET", f"/dns-query?dns={TEXT[:9]}{junk}{TEXT[9:]}"), 400) for junk in JUNK),
        *((HttpRequest(1, "GET", f"/dns-query?dns={TEXT}{junk}"), 400) for junk in JUNK),
        *((HttpRequest(1, "GET", f"/dns-query?dns={junk}{TEXT}"), 400) for junk in JUNK),
        *((HttpRequest(1, "GET", f"/dns-query?dns={TEXT[:cut]}"), 400) for cut in (1, 5, 9)),
        (HttpRequest(1, "GET", "/dns-query?dns=A"), 400),
        (HttpRequest(1, "GET", "/dns-query?dns=%FF%FF"), 400),
    ],
)
def test_requests(request_: HttpRequest, status: int) -> None:
    question = query_of(request_)
    if status == 200:
        assert question == QUERY
    else:
        assert isinstance(question, Refusal)
        assert question.status == status


def record(rtype: int, ttl: int, rdata: bytes) -> bytes:
    return (
        b"\xc0\x0c"
        + rtype.to_bytes(2, "big")
        + b"\0\1"
        + ttl.to_bytes(4, "big")
        + len(rdata).to_bytes(2, "big")
        + rdata
    )


ADDRESS = record(1, 300, b"\1\2\3\4")
SOA = record(6, 900, b"\0\0" + (1).to_bytes(4, "big") * 4 + (60).to_bytes(4, "big"))
OPT = b"\0\0\x29\x04\xd0\0\0\0\0\0\0"


@pytest.mark.parametrize(
    ("counts", "records", "seconds"),
    [
        ((1, 0, 0), ADDRESS, 300),
        ((2, 0, 1), ADDRESS + record(1, 30, b"\1\2\3\5") + OPT, 30),
        ((0, 1, 0), SOA, 60),
        ((1, 1, 0), ADDRESS + SOA, 60),
        ((1, 0, 0), record(1, 86400, b"\1\2\3\4"), 3600),
        ((0, 0, 1), OPT, 5),
        ((3, 0, 0), ADDRESS, 0),
    ],
)
def test_responses_are_cached_no_longer_than_their_records(
    counts: tuple[int, int, int], records: bytes, seconds: int
) -> None:
    numbers = b"".join(count.to_bytes(2, "big") for count in counts)
    assert max_age_s(HEAD + numbers + QUESTION + records) == seconds
