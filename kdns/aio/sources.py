"""Services from where the user points: manifests on disk, or an API server asked once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from kdns.aio.kubeconfigs import paths_of
from kdns.aio.manifestfiles import load, text_of
from kdns.aio.yamldocs import field_line
from kdns.cluster.objects import Service, ServiceMeta, ServiceSpec
from kdns.cluster.watching import Timing
from kdns.controlplane.kinds import SERVICE
from kdns.controlplane.manifests import Manifest
from kdns.env import MASTER_SERVICE
from kdns.errors import ApiServerError, InputError, ManifestError

T = TypeVar("T")

PAGE = 500
"""Services per request, as kubectl asks."""


class ListMeta(msgspec.Struct, frozen=True, rename={"next_page": "continue"}):
    """metadata of a list: where it goes on, "" at its end."""

    next_page: str = ""


class ServicePage(msgspec.Struct, frozen=True):
    """One page of a list of Services."""

    items: tuple[Service, ...] = ()
    metadata: ListMeta = ListMeta()


def services_from_manifests(paths: Sequence[Path], warn: Callable[[str], None]) -> list[Service]:
    """The Services that files and folders define; ManifestError for the first thing wrong in them.

    `warn` hears of Services that only an API server would give an address.
    """
    manifests, _ = load(paths)
    services = []
    for manifest in manifests:
        if manifest.kind is not SERVICE:
            continue
        service = _service(manifest)
        if not service.spec.cluster_ip and not service.is_external_name:
            where = f"{manifest.path}:{manifest.line}"
            warn(f"{where}: Service {service.metadata.name} has no clusterIP here, an API server would give it one")
        services.append(service)
    return services


async def services_from_server(server: str, kubeconfig: str, namespace: str) -> list[Service]:
    """The Services a container in `namespace` may hear of, asked of the server at this URL or of a kubeconfig.

    Raises KubeconfigError and ApiServerError.
    """
    from kdns.aio.connection import Connection, RestStats  # noqa: PLC0415
    from kdns.aio.source import Source  # noqa: PLC0415

    async with Connection(Source(kubeconfig=kubeconfig, endpoint=server), RestStats(), Timing()) as connection:
        services: list[Service] = []
        params = {"limit": str(PAGE)}
        while True:
            page = _decoded(connection.server, await connection.get(_path(namespace), params), ServicePage)
            services += page.items
            if not page.metadata.next_page:
                break
            params["continue"] = page.metadata.next_page
        master_namespace, master_name = MASTER_SERVICE
        if namespace != master_namespace:
            try:
                body = await connection.get(f"{_path(master_namespace)}/{master_name}", {})
            except ApiServerError as error:
                if error.status != 404:
                    raise
            else:
                services.append(_decoded(connection.server, body, Service))
        return services


def default_kubeconfig() -> str:
    """What kubectl would use: the files of $KUBECONFIG, else ~/.kube/config; InputError where there is none."""
    named = os.environ.get("KUBECONFIG", "").strip(os.pathsep) or "~/.kube/config"
    if any(map(os.path.isfile, paths_of(named))):
        return named
    raise InputError(f"no kubeconfig at {named}: give --kubeconfig FILE, --server URL or --manifests PATH")


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services"


def _decoded(server: str, body: bytes, wanted: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=wanted)
    except msgspec.DecodeError as error:
        raise ApiServerError(server, f"not the answer of a Kubernetes API: {error}") from error


def _service(manifest: Manifest) -> Service:
    """The slim Service of a manifest, in the namespace that it lands in."""
    path, line, obj = manifest.path, manifest.line, manifest.obj
    try:
        spec = msgspec.convert(obj.get("spec") or {}, ServiceSpec)
    except msgspec.ValidationError as error:
        reason, _, at = str(error).partition(" - at `$")
        field = f"spec{at.removesuffix('`')}"
        raise ManifestError(path, field_line(path, text_of(Path(path)), line, field), field, reason) from error
    return Service(ServiceMeta(manifest.name, manifest.namespace), spec)
