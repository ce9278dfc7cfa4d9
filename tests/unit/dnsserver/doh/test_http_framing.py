"""Requests of HTTP/1.1 whose ends could be understood in two ways: what is behind them is never another request."""

from http import HTTPStatus

import pytest

from kdns.dnsserver.doh.exchange import HttpError, Refusal, query_of
from kdns.dnsserver.doh.http1 import Http1, origin_form

QUERY = b"\0\0\1\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1"
GET = b"GET /dns-query?dns=AAABAAABAAAAAAAAAWEAAAEAAQ HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /dns-query HTTP/1.1\r\nHost: x\r\nContent-Type: application/dns-message\r\n"
CHUNKED = b"\r\n13\r\n" + QUERY + b"\r\n0\r\n\r\n"
LENGTH = b"Content-Length: 19\r\n"
CODING = b"Transfer-Encoding: chunked\r\n"

# what is sent, with a GET behind it; how many queries there are before the end, None where the request is refused
FRAMINGS: dict[str, tuple[bytes, int | None]] = {
    "a length": (POST + LENGTH + b"\r\n" + QUERY, 2),
    "the same length twice": (POST + LENGTH + LENGTH + b"\r\n" + QUERY, 2),
    "chunks": (POST + CODING + CHUNKED, 2),
    "a chunk with an extension": (POST + CODING + CHUNKED.replace(b"13", b"13;a=b"), 2),
    "a length as a trailer": (POST + CODING + CHUNKED[:-2] + b"Content-Length: 60\r\n\r\n", 2),
    "a whole URL": (GET.replace(b" /", b" https://x/"), 2),
    "a length and chunks": (POST + LENGTH + CODING + CHUNKED, None),
    "chunks and a length": (POST + CODING + LENGTH + CHUNKED, None),
    "chunks of HTTP/1.0": (POST.replace(b"1.1", b"1.0") + CODING + CHUNKED, None),
    "two lengths": (POST + LENGTH + b"Content-Length: 0\r\n\r\n" + QUERY, None),
    "a length with a sign": (POST + b"Content-Length: +19\r\n\r\n" + QUERY, None),
    "a length of 5000 digits": (POST + b"Content-Length: " + b"0" * 5000 + b"\r\n\r\n", None),
    "two codings": (POST + b"Transfer-Encoding: gzip, chunked\r\n" + CHUNKED, None),
    "the coding twice": (POST + CODING + CODING + CHUNKED, None),
    "a blank before the colon": (POST + CODING.replace(b":", b" :") + CHUNKED, None),
    "a carriage return in a value": (POST + b"X: a\r" + CODING + CHUNKED, None),
    "a chunk with a sign": (POST + CODING + CHUNKED.replace(b"13", b"+13"), None),
    "a chunk with a line feed": (POST + CODING + CHUNKED.replace(b"13\r", b"13"), None),
    "bytes behind a chunk": (POST + CODING + CHUNKED.replace(b"\r\n0", b"ab0"), None),
    "two hosts": (POST + b"Host: y\r\n" + LENGTH + b"\r\n" + QUERY, None),
}


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize("about", FRAMINGS)
def test_framing(about: str, step: int) -> None:
    sent, count = FRAMINGS[about]
    received, codec, queries = sent + GET, Http1(), []

    def receive() -> None:
        for start in range(0, len(received), step):
            requests = codec.receive(received[start : start + step])
            while requests:
                queries.append(query_of(requests[0]))
                codec.respond(0, HTTPStatus.OK, (), b"")
                requests = codec.receive(b"")

    if count is None:
        with pytest.raises(HttpError):
            receive()
        assert not queries
        assert codec.to_send().startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    else:
        receive()
        assert queries == [QUERY] * count


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/a?b", "/a?b"),
        ("http://x/a?b", "/a?b"),
        ("HTTPS://x:1/a", "/a"),
        ("http://x", ""),
        ("ftp://x/a", "ftp://x/a"),
        ("/a://b", "/a://b"),
        ("*", "*"),
    ],
)
def test_origin_form(target: str, path: str) -> None:
    assert origin_form(target) == path


def test_a_refusal_names_the_path() -> None:
    (request,) = Http1().receive(GET.replace(b" /dns-query", b" http://x/other"))
    assert isinstance(query_of(request), Refusal)
