"""HTTP sites beside the DNS server: where they listen, and what they log."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from kdns.aio.http.sites import start_site
from kdns.errors import ListenError


async def test_a_site_tells_its_log_of_bytes_that_are_no_http() -> None:
    site = await start_site("127.0.0.1", 0, {})
    with capture_logs() as logs:
        reader, writer = await asyncio.open_connection(*site.address)
        writer.write(b"GET / HTTP/9.9 x\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
        await site.close()
    assert [(each["event"], each["log_level"]) for each in logs] == [("malformed request", "info")]


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("203.0.113.1", r"cannot listen on 203\.0\.113\.1:9153: Cannot assign requested address"),
        ("2001:db8::1", r"cannot listen on \[2001:db8::1\]:9153: (Cannot assign requested|Address family not supp).*"),
        ("no-such-host.invalid", r"cannot listen on no-such-host\.invalid:9153: [A-Z](?!nknown error).*"),
    ],
)
async def test_a_site_that_cannot_listen_says_why(host: str, message: str) -> None:
    with pytest.raises(ListenError, match=f"^{message}$"):
        await start_site(host, 9153, {})
