import asyncio
import base64
import json
import ssl
import stat
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import Cluster, FakeApi, service, until
from fake_api_certs import Authority, authority, issue
from structlog.testing import capture_logs

from kdns.cluster.io import connection as connection_module
from kdns.cluster.io.connection import Connection, RestStats
from kdns.cluster.io.informer import FollowStats, follow
from kdns.cluster.objects import Service
from kdns.cluster.source import ClientTLS, Scope, Source
from kdns.cluster.state import State
from kdns.cluster.watch import Timing
from kdns.errors import InputError, KubeconfigError

PATIENCE = Timing(connect_s=5, reply_s=5, backoff_s=0.02, backoff_cap_s=0.05)


@dataclass(frozen=True)
class Files:
    folder: Path
    ca: Path
    cert: Path
    key: Path
    authority: Authority


@pytest.fixture
def files(tmp_path: Path) -> Files:
    ca = authority("ca")
    (tmp_path / "ca.crt").write_bytes(ca.pem)
    cert, key = issue(ca, "client", tmp_path)
    return Files(tmp_path, tmp_path / "ca.crt", cert, key, ca)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    api = FakeApi(Cluster())
    api.cluster.put("services", service("one"))
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
async def mutual(files: Files) -> AsyncIterator[FakeApi]:
    """A server with TLS that wants a client certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files.ca))
    context.load_cert_chain(*issue(files.authority, "server", files.folder))
    context.verify_mode = ssl.CERT_REQUIRED
    api = FakeApi(Cluster(), tls=context)
    api.cluster.put("services", service("one"))
    await api.start()
    yield api
    await api.stop()


def kubeconfig(folder: Path, server: str, user: dict[str, Any] | None, **cluster: Any) -> Path:
    path = folder / "kubeconfig"
    context: dict[str, Any] = {"cluster": "c"} | ({"user": "u"} if user is not None else {})
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [{"name": "main", "context": context}, {"name": "other", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
    }
    if user is not None:
        content["users"] = [{"name": "u", "user": user}]
    path.write_text(yaml.safe_dump(content))
    return path


async def services(source: Source) -> list[str]:
    """The names a single list request brings."""
    async with Connection(source, RestStats(), PATIENCE) as connection:
        page = json.loads(await connection.call("GET", "/api/v1/services"))
    return [item["metadata"]["name"] for item in page["items"]]


def script(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def plugin(folder: Path, status: dict[str, Any]) -> dict[str, Any]:
    """An exec plugin that gives `status`, as the user of a kubeconfig; its command counts from the file's folder."""
    version = "client.authentication.k8s.io/v1"
    credential = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    script(folder, "plugin", f"print({credential!r})")
    return {"exec": {"apiVersion": version, "command": "./plugin", "interactiveMode": "Never"}}


BASIC = "Basic " + base64.b64encode(b"me:secret").decode()


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        (None, ""),
        ({}, ""),
        ({"token": "abc"}, "Bearer abc"),
        ({"tokenFile": "token"}, "Bearer from-file"),
        ({"username": "me", "password": "secret"}, BASIC),
        (
            {"auth-provider": {"name": "gcp", "config": {"access-token": "g", "expiry": "2100-01-01T00:00:00Z"}}},
            "Bearer g",
        ),
        ("exec", "Bearer of-plugin"),
    ],
    ids=["no user", "empty user", "token", "tokenFile", "basic", "gcp", "exec"],
)
async def test_each_kind_of_user(api: FakeApi, tmp_path: Path, user: Any, authorization: str) -> None:
    (tmp_path / "token").write_text("from-file\n")
    if user == "exec":
        user = plugin(tmp_path, {"token": "of-plugin"})
    path = kubeconfig(tmp_path, api.url, user)
    assert await services(Source(kubeconfig=str(path), context="other")) == ["one"]
    assert api.headers[-1].get("Authorization", "") == authorization
    assert api.headers[-1]["User-Agent"].startswith("kdns/")


@pytest.mark.parametrize("how", ["files", "relative files", "data", "exec", "endpoint", "skip verify"])
async def test_client_certificates(mutual: FakeApi, files: Files, how: str) -> None:
    def encoded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    user: dict[str, Any] = {"client-certificate": str(files.cert), "client-key": str(files.key)}
    cluster: dict[str, Any] = {"certificate-authority": str(files.ca)}
    match how:
        case "relative files":
            user = {"client-certificate": files.cert.name, "client-key": files.key.name}
            cluster = {"certificate-authority": files.ca.name}
        case "data":
            user = {"client-certificate-data": encoded(files.cert), "client-key-data": encoded(files.key)}
            cluster = {"certificate-authority-data": encoded(files.ca)}
        case "exec":
            pems = {"clientCertificateData": files.cert.read_text(), "clientKeyData": files.key.read_text()}
            user = plugin(files.folder, pems)
        case "skip verify":
            cluster = {"insecure-skip-tls-verify": True}
    source = Source(kubeconfig=str(kubeconfig(files.folder, mutual.url, user, **cluster)))
    if how == "endpoint":
        source = Source(endpoint=mutual.url, tls=ClientTLS(str(files.cert), str(files.key), str(files.ca)))
    assert await services(source) == ["one"]


async def test_the_service_account(mutual: FakeApi, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod only the server proves itself with a certificate."""
    assert mutual.tls
    mutual.tls.verify_mode = ssl.CERT_NONE
    (files.folder / "token").write_text("of-pod\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(mutual.port))
    assert await services(Source(service_account=str(files.folder))) == ["one"]
    assert mutual.headers[-1]["Authorization"].lower() == "bearer of-pod"


def with_user(tmp_path: Path, user: dict[str, Any], **cluster: Any) -> str:
    return str(kubeconfig(tmp_path, "https://127.0.0.1:1", user, **cluster))


def raw(tmp_path: Path, text: str) -> str:
    (tmp_path / "raw").write_text(text)
    return str(tmp_path / "raw")


NO_PLUGIN = {"exec": {"apiVersion": "v1", "command": "kdns-no-such-plugin", "installHint": "install it so"}}


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda folder: str(folder / "missing"), "No such file"),
        (str, "Is a directory"),
        (lambda folder: raw(folder, "a: [b"), "expected YAML or JSON"),
        (lambda folder: raw(folder, ""), "NoneType at the top"),
        (lambda folder: raw(folder, "- a"), "list at the top"),
        (lambda folder: with_user(folder, {"tokenFile": "no-token"}), "no-token"),
        (lambda folder: with_user(folder, {"client-certificate": "no.crt", "client-key": "no.key"}), "no.crt"),
        (lambda folder: with_user(folder, {"client-certificate-data": "%%%", "client-key-data": "x"}), "base64"),
        (lambda folder: with_user(folder, {}, **{"certificate-authority-data": "bm9uZQ=="}), "PEM files"),
        (
            lambda folder: with_user(folder, NO_PLUGIN),
            "'kdns-no-such-plugin' does not exist; expected an executable file or one on PATH; install",
        ),
        (
            lambda folder: with_user(folder, {"auth-provider": {"name": "oidc"}}),
            "auth-provider oidc is not supported; expected an exec plugin, such as kubelogin",
        ),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_stops_the_start(tmp_path: Path, write: Any, said: str) -> None:
    path = write(tmp_path)
    with pytest.raises(KubeconfigError) as caught:
        await follow(Source(kubeconfig=path), State(), lambda _: None, FollowStats())
    assert said in str(caught.value)
    assert "PEM" in said or str(caught.value).startswith(path)
    assert isinstance(caught.value, InputError)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (Source(kubeconfig="/none", context="x"), "/none: No such file"),
        (Source(endpoint="localhost:8080"), "expected http://HOST:PORT"),
        (Source(endpoint="https://h", tls=ClientTLS("/no.crt", "/no.key", "/no.ca")), "/no.crt: no such file"),
        (Source(service_account="/none"), "expected to run in a pod with a service account, or else `kubeconfig FILE`"),
    ],
)
async def test_other_sources_that_cannot_be_used(source: Source, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeconfigError) as caught:
        await follow(source, State(), lambda _: None, FollowStats())
    assert said in str(caught.value)


async def _followed_while(source: Source, state: State, then: Any) -> list[Any]:
    with capture_logs() as logs:
        task = asyncio.create_task(
            follow(source, state, lambda _: None, FollowStats(), scope=Scope(kinds=(Service,)), timing=PATIENCE)
        )
        try:
            await then(logs)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return logs


@pytest.mark.parametrize("kind", ["tokenFile", "exec"])
async def test_a_token_that_is_no_longer_accepted_is_renewed_at_once(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(connection_module, "RENEW_S", 0.0)

    def write(token: str) -> dict[str, Any]:
        (tmp_path / "token").write_text(token)
        return {"tokenFile": "token"} if kind == "tokenFile" else plugin(tmp_path, {"token": token})

    path, state = kubeconfig(tmp_path, api.url, write("first")), State()
    api.accepts = lambda authorization: authorization == "Bearer first"

    async def then(logs: list[Any]) -> None:
        await until(lambda: bool(api.watching["services"]))
        write("second")
        api.accepts = lambda authorization: authorization == "Bearer second"
        api.drop()
        api.cluster.put("services", service("two"))
        await until(lambda: api.cluster.holds(state))
        assert not [entry for entry in logs if entry["event"] == "api server refuses"]

    await _followed_while(Source(kubeconfig=str(path)), state, then)
    assert api.lists("services") == 1


async def test_rotated_client_certificates_are_read_again(
    mutual: FakeApi, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "RENEW_S", 0.0)
    good = files.cert.read_bytes(), files.key.read_bytes()
    issue(authority("somebody else"), "client", files.folder)
    source, state = Source(endpoint=mutual.url, tls=ClientTLS(str(files.cert), str(files.key), str(files.ca))), State()

    async def then(logs: list[Any]) -> None:
        await until(lambda: any(entry["event"] == "api server lost" for entry in logs))
        files.cert.write_bytes(good[0])
        files.key.write_bytes(good[1])
        await until(lambda: mutual.cluster.holds(state))

    await _followed_while(source, state, then)


async def test_a_failing_plugin_is_told_and_tried_again(api: FakeApi, tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "x"})
    script(tmp_path, "plugin", "import sys; sys.exit('the cloud is away')")
    path, state = kubeconfig(tmp_path, api.url, user), State()

    async def then(logs: list[Any]) -> None:
        await until(lambda: any("the cloud is away" in str(entry.get("reason")) for entry in logs))
        plugin(tmp_path, {"token": "x"})
        await until(lambda: api.cluster.holds(state))

    await _followed_while(Source(kubeconfig=str(path)), state, then)


async def test_a_proxy_from_the_environment_is_not_asked_about_loopback(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert await services(Source(endpoint=api.url)) == ["one"]


@pytest.mark.parametrize(("allowed", "most"), [(0, 6), (1, 1), (2, 2)])
async def test_requests_under_way_are_limited(api: FakeApi, allowed: int, most: int) -> None:
    api.wait_for = 6 if allowed == 0 else allowed
    async with Connection(Source(endpoint=api.url, max_inflight=allowed), RestStats(), PATIENCE) as connection:
        await asyncio.gather(*(connection.call("GET", "/api/v1/services") for _ in range(6)))
    assert api.most_at_once == most


async def test_a_server_with_a_foreign_certificate_is_not_believed(mutual: FakeApi, files: Files) -> None:
    other = authority("other")
    files.ca.write_bytes(other.pem)
    source, state = Source(endpoint=mutual.url, tls=ClientTLS(ca=str(files.ca))), State()

    async def then(logs: list[Any]) -> None:
        await until(lambda: any("certificate verify failed" in str(entry.get("reason")) for entry in logs))

    await _followed_while(source, state, then)
    assert not mutual.requests
