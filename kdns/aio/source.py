"""Which API server is meant: one of three ways to name it."""

from __future__ import annotations

from dataclasses import dataclass

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class ClientTLS:
    """The three files of the Corefile's `tls` option, all PEM; "" for one that is not used."""

    cert: str = ""
    key: str = ""
    ca: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the API is: a kubeconfig when given (or several, as in $KUBECONFIG), else an endpoint, else the pod's own.

    `server` is the URL in place of the one that a kubeconfig has.
    qps and burst limit requests (0: no limit), max_inflight limits those under way, watches not counted (0: no limit).
    Differs: CoreDNS asks 5 times a second by default, which would only delay paged lists; kdns limits when told to.
    """

    kubeconfig: str = ""
    context: str = ""
    endpoint: str = ""
    tls: ClientTLS = ClientTLS()
    service_account: str = SERVICE_ACCOUNT
    qps: float = 0.0
    burst: int = 0
    max_inflight: int = 0
    server: str = ""
