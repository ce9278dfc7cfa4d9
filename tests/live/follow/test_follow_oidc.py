from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fake_api_certs import authority, issue

from kdns.cluster.io.oidc import expired, id_token
from kdns.errors import ApiServerError, KubeconfigError


def jwt(**claims: Any) -> str:
    parts = (b'{"alg":"none"}', json.dumps(claims, ensure_ascii=False).encode(), b"signed")
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@dataclass
class Provider:
    """An identity provider which takes each refresh token once and gives a new one."""

    issuer: str
    ca_file: str
    ca_data: str
    forms: list[dict[str, str]] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)

    @property
    def config(self) -> dict[str, str]:
        return {"idp-issuer-url": self.issuer, "client-id": "me", "refresh-token": "refresh0"}

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.authorizations.append(request.headers.get("Authorization", ""))
        if form.get("refresh_token") != f"refresh{len(self.forms)}":
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.forms.append(form)
        number = len(self.forms)
        return web.json_response({"id_token": f"id{number}", "refresh_token": f"refresh{number}"})


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    ca = authority("identity")
    (tmp_path / "idp.crt").write_bytes(ca.pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*issue(ca, "server", tmp_path))
    provider = Provider("", str(tmp_path / "idp.crt"), base64.b64encode(ca.pem).decode())

    async def discovery(_: web.Request) -> web.Response:
        return web.json_response({"issuer": provider.issuer, "token_endpoint": f"{provider.issuer}/token"})

    app = web.Application()
    app.router.add_get("/realm/.well-known/openid-configuration", discovery)
    app.router.add_post("/realm/token", provider.token)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    provider.issuer = f"https://127.0.0.1:{runner.addresses[0][1]}/realm"
    yield provider
    await runner.cleanup()


@pytest.mark.parametrize("where", ["file", "data"])
async def test_an_expired_token_is_refreshed_again_and_again(provider: Provider, where: str) -> None:
    ca = {"idp-certificate-authority": provider.ca_file}
    if where == "data":
        ca = {"idp-certificate-authority-data": provider.ca_data}
    config = provider.config | ca | {"id-token": jwt(exp=time.time() - 5), "client-secret": "s:/"}
    newest: dict[str, str] = {}
    assert [await id_token("kubeconfig", config, newest) for _ in range(3)] == ["id1", "id2", "id3"]
    assert provider.forms[0] == {"grant_type": "refresh_token", "refresh_token": "refresh0"}
    assert provider.authorizations == ["Basic " + base64.b64encode(b"me:s%3A%2F").decode()] * 3


async def test_a_public_client_has_no_secret(provider: Provider) -> None:
    config = provider.config | {"idp-certificate-authority": provider.ca_file}
    assert await id_token("kubeconfig", config, {}) == "id1"
    assert provider.authorizations == [""]
    assert provider.forms[0]["client_id"] == "me"


async def test_an_unknown_provider_gets_no_refresh_token(provider: Provider) -> None:
    with pytest.raises(ApiServerError, match="certificate verify failed"):
        await id_token("kubeconfig", provider.config, {})
    assert provider.forms == []


async def test_a_refused_refresh_is_told(provider: Provider) -> None:
    config = provider.config | {"idp-certificate-authority": provider.ca_file, "refresh-token": "revoked"}
    with pytest.raises(ApiServerError, match=r"no fresh id-token: 400 .*invalid_grant"):
        await id_token("kubeconfig", config, {})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "missing or has expired; expected a fresh id-token, or refresh-token"),
        ({"id-token": jwt(exp=1)}, "missing or has expired"),
        ({"id-token": "abc"}, "id-token cannot be read"),
        ({"id-token": "a.b.c"}, "id-token cannot be read"),
        (
            {
                "refresh-token": "r",
                "idp-issuer-url": "https://127.0.0.1:1",
                "client-id": "c",
                "idp-certificate-authority": "/no.crt",
            },
            "CA cannot be used",
        ),
    ],
)
async def test_what_cannot_give_a_token(config: dict[str, str], said: str) -> None:
    with pytest.raises(KubeconfigError) as caught:
        await id_token("kubeconfig", config, {})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("claims", "over"),
    [
        ({"exp": 1000}, True),
        ({"exp": 1059.9}, True),
        ({"exp": 1061}, False),
        ({}, False),
        ({"exp": 5000, "name": "ÿÿÿ???>>>"}, False),
    ],
)
def test_when_a_token_has_expired(claims: dict[str, Any], over: bool) -> None:
    assert expired("kubeconfig", jwt(**claims), 1000.0) is over
