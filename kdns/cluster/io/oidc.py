"""The ID token of a kubeconfig's `auth-provider: {name: oidc}`, refreshed when it has expired.

Differs: the kubernetes package can do this too, but it does not check the provider's certificate unless the kubeconfig
holds the CA inline, fails with the CA when it does, and cannot decode the URL-safe base64 of tokens.
"""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Mapping, MutableMapping
from http import HTTPStatus
from urllib.parse import quote_plus

import aiohttp
import msgspec

from kdns.errors import ApiServerError, KubeconfigError
from kdns.runtime.tls import default_context

EARLY_S = 60.0
"""A token is renewed this long before it expires."""

TIMEOUT = aiohttp.ClientTimeout(total=30)


class Claims(msgspec.Struct, frozen=True):
    """The payload of an ID token, the fields that are used (OpenID Connect Core 1.0 §2)."""

    exp: float | None = None


class Discovery(msgspec.Struct, frozen=True):
    """The provider's metadata, the fields that are used (OpenID Connect Discovery 1.0 §3)."""

    token_endpoint: str


class Tokens(msgspec.Struct, frozen=True):
    """The answer to a refresh (RFC 6749 §5.1, OpenID Connect Core 1.0 §12.2)."""

    id_token: str
    refresh_token: str = ""


async def id_token(path: str, config: Mapping[str, str], refresh_tokens: MutableMapping[str, str]) -> str:
    """Returns a token that has not expired, for the auth-provider `config` of the kubeconfig at `path`.

    `refresh_tokens` maps the file's refresh token to the one that the provider issued for it: the file is not written.
    Raises KubeconfigError for mistakes of the user, ApiServerError if the provider issues no token.
    """
    token = config.get("id-token", "")
    if token and not expired(path, token, time.time()):
        return token
    issuer, client = config.get("idp-issuer-url", ""), config.get("client-id", "")
    refresh_token = config.get("refresh-token", "")
    if not (refresh_token and issuer and client):
        expected = "a fresh id-token, or refresh-token, idp-issuer-url and client-id"
        raise KubeconfigError(path, "the oidc id-token is missing or has expired", expected)
    form = {"grant_type": "refresh_token", "refresh_token": refresh_tokens.get(refresh_token, refresh_token)}
    headers = {}
    if secret := config.get("client-secret"):
        headers["Authorization"] = _basic(client, secret)
    else:
        form["client_id"] = client
    connector = aiohttp.TCPConnector(ssl=_context(path, config))
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT, trust_env=True) as session:
            async with session.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration") as answer:
                discovery = msgspec.json.decode(await _accepted(answer), type=Discovery)
            async with session.post(discovery.token_endpoint, data=form, headers=headers) as answer:
                tokens = msgspec.json.decode(await _accepted(answer), type=Tokens)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ApiServerError(issuer, f"no fresh id-token: {error}") from error
    refresh_tokens[refresh_token] = tokens.refresh_token or form["refresh_token"]
    return tokens.id_token


def expired(path: str, token: str, unix_s: float) -> bool:
    """Returns whether a JSON Web Token expires within EARLY_S. One without `exp` does not expire (RFC 7519 §4.1.4)."""
    try:
        _, payload, _ = token.split(".")
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=Claims)
    except ValueError as error:
        raise KubeconfigError(path, f"the oidc id-token cannot be read: {error}", "a JSON Web Token") from error
    return claims.exp is not None and claims.exp - EARLY_S <= unix_s


def _basic(client: str, secret: str) -> str:
    """Returns the Authorization header of a client with a secret (RFC 6749 §2.3.1)."""
    return "Basic " + base64.b64encode(f"{quote_plus(client)}:{quote_plus(secret)}".encode()).decode()


async def _accepted(answer: aiohttp.ClientResponse) -> bytes:
    body = await answer.read()
    if answer.status != HTTPStatus.OK:
        raise ValueError(f"{answer.status} {' '.join(body[:200].decode('utf-8', 'replace').split())}")
    return body


def _context(path: str, config: Mapping[str, str]) -> ssl.SSLContext:
    try:
        inline = config.get("idp-certificate-authority-data", "")
        pem = base64.b64decode(inline, validate=True).decode("ascii") if inline else None
        return default_context(ca_path=config.get("idp-certificate-authority", ""), ca_pem=pem)
    except (OSError, ValueError) as error:
        raise KubeconfigError(path, f"the oidc provider's CA cannot be used: {error}", "PEM certificates") from error
