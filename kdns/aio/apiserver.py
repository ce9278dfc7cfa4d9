"""How to reach the API server and who to be there, read from where the user said: one of three ways.

Whatever is wrong with what the user wrote becomes a KubeconfigError. The credentials themselves (exec plugins, tokens,
token files, client certificates, basic, Google) are found by the kubernetes package, OpenID Connect's by oidc.py.
This module is the only door to that package. Importing it costs about 0.2 s and 20 MiB: connection.py does so when it
first logs in.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import InClusterConfigLoader
from kubernetes.aio.config.kube_config import KubeConfigLoader

from kdns.aio.kubeconfigs import kubeconfig, server_url
from kdns.aio.oidc import id_token
from kdns.aio.source import ClientTLS, Source
from kdns.errors import ApiServerError, KubeconfigError

AddrInfo: TypeAlias = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]


async def credentials(source: Source, newest: MutableMapping[str, str]) -> Configuration:
    """The client configuration for `source`; `newest` remembers refresh tokens between calls (see oidc.id_token).

    Raises KubeconfigError for what the user must mend, ApiServerError where an exec plugin or identity provider failed.
    """
    if source.kubeconfig:
        configuration = await _from_kubeconfig(source.kubeconfig, source.context, newest)
        if source.server:
            configuration.host = server_url("server", source.server)
    elif source.endpoint:
        configuration = _from_endpoint(source.endpoint, source.tls)
    else:
        configuration = _from_service_account(Path(source.service_account))
    # Certificates of many clusters lack extensions that RFC 5280 wants; Go's clients don't ask for them either.
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


def _from_service_account(folder: Path) -> Configuration:
    configuration = Configuration()
    loader = InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt"))
    try:
        loader.load_and_set(configuration)
    except (ConfigException, OSError) as error:
        wanted = "to run in a pod with a service account, or else `kubeconfig FILE` or `endpoint URL`"
        raise KubeconfigError(str(folder), str(error).rstrip("."), wanted) from error
    return configuration


async def _from_kubeconfig(where: str, context: str, newest: MutableMapping[str, str]) -> Configuration:
    content, user = kubeconfig(where, context)
    provider = user.get("auth-provider") or {}
    if provider.get("name") == "oidc":
        del user["auth-provider"]
        user["token"] = await id_token(where, provider.get("config") or {}, newest)
    configuration = Configuration()
    try:
        with _said_by_package() as said:
            loader = KubeConfigLoader(content, active_context=context or None, config_base_path="")
            await loader.load_and_set(configuration)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ApiServerError(where, f"no credentials from the identity provider: {error}") from error
    except (ConfigException, OSError, ValueError, TypeError, KeyError) as error:
        raise KubeconfigError(where, str(error) or type(error).__name__, "a usable cluster and user") from error
    if "exec" in user and not (configuration.api_key or configuration.cert_file):
        command = user["exec"].get("command")
        raise ApiServerError(where, f"no credentials from exec plugin {command!r}: {'; '.join(said)}")
    return configuration


@contextmanager
def _said_by_package() -> Iterator[list[str]]:
    """What the package logs meanwhile: the only place where it tells why an exec plugin failed."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger, listener = logging.getLogger("kubernetes.aio.config.kube_config"), Listener(logging.WARNING)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(listener)
    try:
        yield said
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagated


def tls_fingerprint(configuration: Configuration) -> tuple[object, ...]:
    """Equal for two configurations that make the same connections: then only the token may differ."""
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    contents = tuple(Path(path).read_bytes() if path else b"" for path in files)
    names = (configuration.host, configuration.tls_server_name, configuration.proxy, configuration.verify_ssl)
    return (*names, *contents)


class Session(RESTClientObject):
    """The package's HTTP session, with connections that notice a dead peer.

    Raises KubeconfigError for certificates or keys that cannot be used.
    """

    def __init__(self, configuration: Configuration) -> None:
        files = [p for p in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file) if p]
        try:
            if configuration.cert_file:  # first, because the package would ask a terminal for the key's password
                _context().load_cert_chain(configuration.cert_file, configuration.key_file, password="")
            super().__init__(configuration)
        except (OSError, ValueError) as error:
            raise KubeconfigError(
                ", ".join(files), str(error), "PEM files that belong together, no password"
            ) from error
        if is_loopback(configuration.host):  # Go's clients never send these through a proxy from the environment
            configuration.client_session_kwargs = {"trust_env": False}

    async def authorization(self) -> str:
        """The Authorization header, "" without one; a service account's token is read again once a minute.

        Raises ApiServerError when the token file has become unreadable.
        """
        try:
            return str(await self.configuration.get_api_key_with_prefix("BearerToken") or "").strip()
        except (ConfigException, OSError) as error:
            raise ApiServerError(self.configuration.host, f"cannot read the token: {error}") from error

    async def ask(
        self, url: str, headers: dict[str, str], patience: aiohttp.ClientTimeout, body: object = None
    ) -> aiohttp.ClientResponse:
        """The answer to a GET, or to a POST of a body, its own body not yet read. Raises what aiohttp raises."""
        package: Any = super()  # its request() carries no annotations
        method = "GET" if body is None else "POST"
        given = {} if body is None else {"body": body}
        response: aiohttp.ClientResponse = (
            await package.request(method, url, headers=headers, _request_timeout=patience, **given)
        ).response
        return response

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(limit=0, ssl=self.ssl_context, socket_factory=keepalive_socket)


def _context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def is_loopback(url: str) -> bool:
    """Whether the server is on this machine's loopback interface, as far as its URL says."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def keepalive_socket(address: AddrInfo) -> socket.socket:
    """A client socket whose peer is probed after 30 s of silence and given up about 30 s later."""
    family, kind, protocol, _, _ = address
    client = socket.socket(family, kind, protocol)
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            client.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return client
