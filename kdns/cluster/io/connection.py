"""Requests to one API server: the body of a response, or the chunks of a watch as they arrive.

Every failure is an ApiServerError. If the server rejects the credentials (401, or a TLS alert), the kubeconfig with its
exec plugin, token or certificate files is read again, once for all requests in flight.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
from asyncio_throttle.throttler import Throttler

from kdns import __version__
from kdns.cluster.source import Source
from kdns.cluster.watch import DECODE_ERRORS, OBJECT_MAX_BYTES, Timing, decode_status
from kdns.errors import ApiServerError, KubeconfigError
from kdns.runtime.metrics import Histogram
from kdns.runtime.os_errors import os_reason

if TYPE_CHECKING:
    from kdns.cluster.io.credentials import Session

HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # within a cluster, decompression takes longer than the transfer
    "User-Agent": f"kdns/{__version__}",
}
CONTENT_TYPES = {"POST": "application/json", "PATCH": "application/merge-patch+json"}
LOGIN_S = 60.0
"""The timeout of an exec plugin or identity provider."""

RENEW_S = 10.0
"""Younger credentials are not renewed: the server rejects them for another reason."""

MAX_BODY_BYTES = OBJECT_MAX_BYTES
"""The longest body that is read whole, that of one object; lists are read in chunks."""

MAX_ERROR_BYTES = 1 << 20

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class UnauthenticatedError(ApiServerError):
    """The server rejects the credentials, or its certificate is not trusted."""


@dataclass(slots=True)
class RestStats:
    """The counters of coredns_kubernetes_rest_client_*; keys are label values in order."""

    requests: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # code or "<error>", method, host
    durations: dict[tuple[str, str], Histogram] = field(default_factory=dict)  # verb, host; until the reply's headers
    throttled: dict[tuple[str, str], Histogram] = field(default_factory=dict)  # verb, host


class Connection:
    """A client of one API server, an async context manager; entering does not need the server."""

    def __init__(
        self, source: Source, stats: RestStats, timing: Timing, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._source, self._stats, self._timing, self._now_s = source, stats, timing, now_s
        self._session: Session | None = None
        self._fingerprint: tuple[object, ...] = ()
        self._login = asyncio.Lock()
        self._logins, self._login_s = 0, 0.0
        burst = source.burst or max(1, round(source.qps))
        self._throttler = Throttler(burst, burst / source.qps) if source.qps else None
        self._slots: AbstractAsyncContextManager[object] = (
            asyncio.Semaphore(source.max_inflight) if source.max_inflight else nullcontext()
        )

    async def __aenter__(self) -> Self:
        """Reads the credentials; KubeconfigError for mistakes in them.

        A failed exec plugin or identity provider is called again with the first request.
        """
        with suppress(ApiServerError):
            await self._logged_in()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self._session.close()

    @property
    def server(self) -> str:
        """The API server's URL, or the kubeconfig while the URL is unknown."""
        return self._session.configuration.host if self._session else self._source.kubeconfig

    async def call(self, method: str, path: str, body: object = None) -> bytes:
        """The body of a successful response; POST sends an object as JSON, PATCH a merge patch (RFC 7386)."""
        async with self._slots:
            return await self._read(await self._send(method, path, {}, self._timing.reply_s, body))

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            if len(body := await _beginning(response, MAX_BODY_BYTES)) > MAX_BODY_BYTES:
                raise ApiServerError(self.server, f"a response of more than {MAX_BODY_BYTES} bytes for one object")
        except (aiohttp.ClientError, OSError) as error:
            raise ApiServerError(self.server, _reason(error)) from error
        else:
            return body
        finally:
            response.release()  # closes the connection if the response was not read to its end

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Streams the chunks of a successful response; enters when the headers have arrived.

        A watch does not count as a concurrent request, and may be silent for Timing.idle_s.
        """
        is_watch = "watch" in params
        silence_s = self._timing.idle_s if is_watch else self._timing.reply_s
        async with nullcontext() if is_watch else self._slots:
            response = await self._send("GET", path, params, silence_s)
            try:
                yield self._chunks(response, silence_s)
            finally:
                response.close()

    async def _chunks(self, response: aiohttp.ClientResponse, silence_s: float) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except TimeoutError as error:
            raise ApiServerError(self.server, f"silent for {silence_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiServerError(self.server, _reason(error)) from error

    async def _send(
        self, method: str, path: str, params: Mapping[str, str], silence_s: float, body: object = None
    ) -> aiohttp.ClientResponse:
        timeouts = aiohttp.ClientTimeout(connect=self._timing.connect_s, sock_read=silence_s)
        try:
            session, login = await self._logged_in()
            try:
                return await self._request(session, method, path, params, timeouts, body)
            except UnauthenticatedError:
                if not await self._renewed(login):
                    raise
            session, _ = await self._logged_in()
            return await self._request(session, method, path, params, timeouts, body)
        except KubeconfigError as error:  # it was valid at the start, and may be corrected
            raise ApiServerError(self.server, str(error)) from error

    async def _request(
        self,
        session: Session,
        method: str,
        path: str,
        params: Mapping[str, str],
        timeouts: aiohttp.ClientTimeout,
        body: object,
    ) -> aiohttp.ClientResponse:
        host = session.configuration.host
        labels = method, urlsplit(host).netloc
        await self._throttle(labels)
        token = await session.authorization()
        headers = HEADERS | ({"Authorization": token} if token else {})
        headers |= {"Content-Type": CONTENT_TYPES[method]} if method in CONTENT_TYPES else {}
        url = f"{host}{path}?{urlencode(params)}"
        began_s, code = self._now_s(), "<error>"
        try:
            response = await session.send(method, url, headers, timeouts, body)
            code = str(response.status)
            if not response.ok:
                async with response:
                    raise _error_of(host, response, await _beginning(response, MAX_ERROR_BYTES))
        except (aiohttp.ClientError, OSError) as error:
            # with TLS 1.3, a server that rejects the client certificate closes the connection without a response
            unanswered = session.configuration.cert_file and isinstance(error, aiohttp.ServerDisconnectedError)
            failure = UnauthenticatedError if unanswered or _is_tls(error) else ApiServerError
            raise failure(host, _reason(error)) from error
        finally:
            self._stats.requests[code, *labels] += 1
            self._stats.durations.setdefault(labels, Histogram(BUCKETS_S)).add(self._now_s() - began_s)
        return response

    async def _throttle(self, labels: tuple[str, str]) -> None:
        if self._throttler:
            began_s = self._now_s()
            await self._throttler.acquire()
            self._stats.throttled.setdefault(labels, Histogram(BUCKETS_S)).add(self._now_s() - began_s)

    async def _logged_in(self) -> tuple[Session, int]:
        """The session, and the number of the login that made or renewed it."""
        async with self._login:
            return self._session or await self._log_in(), self._logins

    async def _renewed(self, login: int) -> bool:
        """Reads the credentials again unless another request did; False if they are too young for that."""
        async with self._login:
            if self._logins == login:
                if self._now_s() - self._login_s < RENEW_S:
                    return False
                await self._log_in()
            return True

    async def _log_in(self) -> Session:
        await asyncio.to_thread(import_module, "kdns.cluster.io.credentials")  # takes 0.2 s; the loop continues
        from kdns.cluster.io.credentials import Session, credentials, tls_fingerprint  # noqa: PLC0415

        try:
            async with asyncio.timeout(LOGIN_S):
                configuration = await credentials(self._source)
        except TimeoutError as error:
            raise ApiServerError(self.server, f"no credentials within {LOGIN_S:.0f} s") from error
        fingerprint = tls_fingerprint(configuration)
        if self._session and fingerprint == self._fingerprint:
            self._session.configuration.api_key = configuration.api_key  # open watches continue
        else:
            old, self._session = self._session, Session(configuration)
            if old:
                await old.close()
        self._fingerprint = fingerprint
        self._logins, self._login_s = self._logins + 1, self._now_s()
        return self._session


async def _beginning(response: aiohttp.ClientResponse, enough: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > enough:
            break
    return bytes(body)


def _error_of(server: str, response: aiohttp.ClientResponse, body: bytes) -> ApiServerError:
    try:
        message = decode_status(body).message
    except DECODE_ERRORS:
        message = " ".join(body[:200].decode("utf-8", "replace").split())
    retry_after = response.headers.get("Retry-After", "")
    failure = UnauthenticatedError if response.status == HTTPStatus.UNAUTHORIZED else ApiServerError
    return failure(
        server,
        message or response.reason or "",
        response.status,
        float(retry_after) if retry_after.isdecimal() else 0.0,
    )


def _is_tls(error: BaseException) -> bool:
    return isinstance(error, aiohttp.ClientSSLError | ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError)


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        return os_reason(error.os_error)
    if isinstance(error, aiohttp.TooManyRedirects):
        last = error.history[-1].headers.get("Location", "") if error.history else ""
        return f"redirected {len(error.history)} times, at last to {last[:200]}"
    if isinstance(error, aiohttp.ClientResponseError):  # its str() begins with a status that was not sent
        return " ".join(error.message.split()) or type(error).__name__
    return " ".join(str(error).split()) or type(error).__name__
