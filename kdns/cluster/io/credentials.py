"""The address of the API server and the client's credentials: from a kubeconfig, an endpoint, or a service account.

Every mistake of the user is a KubeconfigError. The kubernetes package obtains the credentials (exec plugins, tokens,
token files, client certificates, basic, Google). This is the only door to that package, and imports no more than it
needs: the package's `__init__` files would import the clients of all APIs, which take 20 MiB and 0.2 s, and are not in
the image.
"""

from __future__ import annotations

import logging
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp

from kdns.cluster.io.kubeconfig import kubeconfig, server_url
from kdns.cluster.source import ClientTLS, Source
from kdns.errors import ApiServerError, KubeconfigError
from kdns.net import is_loopback

_PACKAGES: Final = ("", "aio", "aio.client", "aio.config", "aio.utils")


@contextmanager
def _kubernetes_without_init() -> Iterator[Any]:
    """Within the context, modules of the kubernetes package are imported without the `__init__` of their folders.

    Yields the folder aio.client. Its modules import two names from it: Configuration, and ApiClient, which kdns does
    not need. Later imports of the package by others are complete.
    """
    spec = find_spec("kubernetes")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'kubernetes'", name="kubernetes")
    before = {name: sys.modules.pop(name) for name in tuple(sys.modules) if f"{name}.".startswith("kubernetes.")}
    folders = {f"kubernetes.{name}".rstrip("."): ModuleType(f"kubernetes.{name}".rstrip(".")) for name in _PACKAGES}
    for name, folder in folders.items():
        below = name.split(".")[1:]
        folder.__path__ = [str(Path(root, *below)) for root in spec.submodule_search_locations]
    sys.modules.update(folders)
    client: Any = folders["kubernetes.aio.client"]
    client.ApiClient = None
    try:
        yield client
    finally:
        for name in tuple(sys.modules):
            if f"{name}.".startswith("kubernetes."):
                del sys.modules[name]
        sys.modules.update(before)


with _kubernetes_without_init() as _client:
    from kubernetes.aio.client.configuration import Configuration

    _client.Configuration = Configuration
    from kubernetes.aio.client.rest import RESTClientObject
    from kubernetes.aio.config.config_exception import ConfigException
    from kubernetes.aio.config.incluster_config import InClusterConfigLoader
    from kubernetes.aio.config.kube_config import KubeConfigLoader

READ_BUFFER_BYTES: Final = 64 * 1024
"""A response that is read slowly buffers twice this and one read of asyncio; the package's default is 2 MiB."""

AddrInfo: TypeAlias = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]


async def credentials(source: Source) -> Configuration:
    """Raises KubeconfigError for mistakes of the user, ApiServerError if an exec plugin or identity provider fails."""
    if source.kubeconfig:
        configuration = await _from_kubeconfig(source.kubeconfig, source.context)
        if source.server:
            configuration.host = server_url("server", source.server)
    elif source.endpoint:
        configuration = _from_endpoint(source.endpoint, source.tls)
        if source.token:
            configuration.api_key["BearerToken"] = f"Bearer {source.token}"
    else:
        configuration = _from_service_account(Path(source.service_account), source.others)
    # certificates of many clusters lack extensions that RFC 5280 requires; Go's clients do not check them either
    configuration.disable_strict_ssl_verification = True
    return configuration


def _from_endpoint(endpoint: str, tls: ClientTLS) -> Configuration:
    configuration = Configuration(host=server_url("endpoint", endpoint))
    for path in (tls.cert, tls.key, tls.ca):
        if path and not Path(path).is_file():
            raise KubeconfigError(path, "no such file", "a PEM file for `tls CERT KEY CACERT`")
    if bool(tls.cert) != bool(tls.key):
        raise KubeconfigError(tls.cert or tls.key, "half of a client certificate", "both CERT and KEY")
    configuration.cert_file, configuration.key_file = tls.cert or None, tls.key or None
    configuration.ssl_ca_cert = tls.ca or None
    return configuration


def _from_service_account(folder: Path, others: str) -> Configuration:
    configuration = Configuration()
    loader = InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt"))
    try:
        loader.load_and_set(configuration)
    except (ConfigException, OSError) as error:
        expected = f"to run in a pod with a service account, or else {others}"
        raise KubeconfigError(str(folder), str(error).rstrip("."), expected) from error
    return configuration


async def _from_kubeconfig(where: str, context: str) -> Configuration:
    content, _, user = kubeconfig(where, context)
    if (user.get("auth-provider") or {}).get("name") == "oidc":
        # Differs: the package's own provider does not check the issuer's certificate unless the file holds its CA.
        raise KubeconfigError(where, "auth-provider oidc is not supported", "an exec plugin, such as kubelogin")
    configuration = Configuration()
    try:
        with _package_warnings() as warnings:
            loader = KubeConfigLoader(content, active_context=context or None, config_base_path="")
            await loader.load_and_set(configuration)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ApiServerError(where, f"no credentials from the identity provider: {error}") from error
    except (ConfigException, OSError, ValueError, TypeError, KeyError) as error:
        raise KubeconfigError(where, str(error) or type(error).__name__, "a usable cluster and user") from error
    if "exec" in user and not (configuration.api_key or configuration.cert_file):
        command = user["exec"].get("command")
        raise ApiServerError(where, f"no credentials from exec plugin {command!r}: {'; '.join(warnings)}")
    return configuration


@contextmanager
def _package_warnings() -> Iterator[list[str]]:
    """Collects the package's log messages: only they say why an exec plugin failed."""
    warnings: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())

    logger, listener = logging.getLogger("kubernetes.aio.config.kube_config"), Listener(logging.WARNING)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(listener)
    try:
        yield warnings
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagated


def tls_fingerprint(configuration: Configuration) -> tuple[object, ...]:
    """Equal for configurations that differ only in the token, so that connections can be reused."""
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    contents = tuple(Path(path).read_bytes() if path else b"" for path in files)
    names = (configuration.host, configuration.tls_server_name, configuration.proxy, configuration.verify_ssl)
    return (*names, *contents)


class Session(RESTClientObject):
    """The package's HTTP session, with TCP keepalive.

    Raises KubeconfigError for certificates or keys that cannot be used.
    """

    def __init__(self, configuration: Configuration) -> None:
        files = [p for p in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file) if p]
        try:
            if configuration.cert_file:  # first, because the package would prompt for the key's password
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
                    configuration.cert_file, configuration.key_file, password=""
                )
            super().__init__(configuration)
        except (OSError, ValueError) as error:
            raise KubeconfigError(
                ", ".join(files), str(error), "PEM files that belong together, no password"
            ) from error
        # like Go's clients, which do not use a proxy of the environment for loopback
        has_proxy = not is_loopback(urlsplit(configuration.host).hostname or "")
        configuration.client_session_kwargs = {"trust_env": has_proxy, "read_bufsize": READ_BUFFER_BYTES}

    async def authorization(self) -> str:
        """The Authorization header, or ""; ApiServerError for a token file that cannot be read.

        The kubernetes package reads a service account's token again once a minute.
        """
        try:
            return str(await self.configuration.get_api_key_with_prefix("BearerToken") or "").strip()
        except (ConfigException, OSError) as error:
            raise ApiServerError(self.configuration.host, f"cannot read the token: {error}") from error

    async def send(
        self, method: str, url: str, headers: dict[str, str], timeouts: aiohttp.ClientTimeout, body: object = None
    ) -> aiohttp.ClientResponse:
        """The body is not read yet. Raises aiohttp's errors."""
        package: Any = super()  # its request() carries no annotations
        content = {} if body is None else {"body": body}
        response: aiohttp.ClientResponse = (
            await package.request(method, url, headers=headers, _request_timeout=timeouts, **content)
        ).response
        return response

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(limit=0, ssl=self.ssl_context, socket_factory=keepalive_socket)


def keepalive_socket(address: AddrInfo) -> socket.socket:
    """Sends the first keepalive probe after 30 s of silence; the connection is lost 30 s later."""
    family, kind, protocol, _, _ = address
    client = socket.socket(family, kind, protocol)
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            client.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return client
