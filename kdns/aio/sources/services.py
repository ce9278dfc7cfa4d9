"""Services of manifests, or of an API server that lists them once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, cast

import msgspec

from kdns.aio.files.manifests import load, text_of
from kdns.aio.files.yaml import field_line
from kdns.aio.kube.kubeconfig import paths_of
from kdns.aio.kube.pager import list_objects
from kdns.cluster.objects import Service, ServiceMeta, ServiceSpec
from kdns.cluster.watch import RESOURCES, DecodeFailure, Timing, check_object
from kdns.controlplane.manifests.manifest import Manifest
from kdns.controlplane.meta.kinds import SERVICE
from kdns.env import MASTER_SERVICE
from kdns.errors import ApiServerError, InputError, ManifestError


def services_from_manifests(paths: Sequence[Path], warn: Callable[[str], None]) -> list[Service]:
    """The Services that files and folders define; ManifestError for the first error in them.

    `warn` gets the Services without clusterIP, which only an API server allocates.
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
    """The Services that become variables in `namespace`, from the server at this URL or of a kubeconfig.

    Raises KubeconfigError and ApiServerError.
    """
    from kdns.aio.kube.connection import Connection, RestStats  # noqa: PLC0415
    from kdns.cluster.source import Source  # noqa: PLC0415

    async with Connection(Source(kubeconfig=kubeconfig, endpoint=server), RestStats(), Timing()) as connection:

        def refuse(failure: DecodeFailure) -> NoReturn:
            raise ApiServerError(connection.server, f"not the answer of a Kubernetes API: {failure.reason}")

        resource = RESOURCES[Service]
        services = cast("list[Service]", await list_objects(connection, resource, refuse, namespace=namespace))
        master_namespace, master_name = MASTER_SERVICE
        if namespace != master_namespace:
            try:
                body = await connection.get(f"{resource.path_in(master_namespace)}/{master_name}", {})
                check_object(resource, body)
                services.append(msgspec.json.decode(body, type=Service))
            except msgspec.DecodeError as error:
                raise ApiServerError(connection.server, f"not the answer of a Kubernetes API: {error}") from error
            except ApiServerError as error:
                if error.status != 404:
                    raise
        return services


def default_kubeconfig() -> str:
    """The kubeconfig of kubectl: the files of $KUBECONFIG, else ~/.kube/config; InputError where none exists."""
    paths = os.environ.get("KUBECONFIG", "").strip(os.pathsep) or "~/.kube/config"
    if any(map(os.path.isfile, paths_of(paths))):
        return paths
    raise InputError(f"no kubeconfig at {paths}: give --kubeconfig FILE, --server URL or --manifests PATH")


def _service(manifest: Manifest) -> Service:
    """The Service of a manifest, in the namespace that it is applied to."""
    path, line, obj = manifest.path, manifest.line, manifest.obj
    try:
        spec = msgspec.convert(obj.get("spec") or {}, ServiceSpec)
    except msgspec.ValidationError as error:
        reason, _, at = str(error).partition(" - at `$")
        field = f"spec{at.removesuffix('`')}"
        raise ManifestError(path, field_line(path, text_of(Path(path)), line, field), field, reason) from error
    return Service(ServiceMeta(manifest.name, manifest.namespace), spec)
