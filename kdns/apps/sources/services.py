"""Services of manifests, or of an API server that lists them once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import msgspec

from kdns.apps.sources.snapshot import snapshot_from_manifests
from kdns.cluster.io.kubeconfig import paths_of
from kdns.cluster.io.pager import list_objects
from kdns.cluster.objects import Service
from kdns.cluster.watch import RESOURCES, DecodeFailure, Timing, check_object
from kdns.controlplane.meta.cluster_config import ClusterConfig
from kdns.env import MASTER_SERVICE
from kdns.errors import ApiServerError, InputError

if TYPE_CHECKING:
    from kdns.cluster.io.connection import Connection


async def services_from_manifests(
    paths: Sequence[Path], config: ClusterConfig, namespace: str, warn: Callable[[str], None]
) -> list[Service]:
    """Returns the Services that `kdns up` would create from files and folders, with Service kubernetes as in a new
    cluster.

    Raises ManifestError, and InputError for manifests that the API refuses and a namespace that does not exist.
    """
    from kdns.controlplane.bootstrap import api_service  # noqa: PLC0415 - late, as the control plane

    snapshot = await snapshot_from_manifests(paths, config, warn)
    snapshot.check_namespace(namespace)
    services = snapshot.state.services
    services.setdefault(MASTER_SERVICE, msgspec.convert(api_service(config), Service))
    return list(services.values())


async def services_from_server(server: str, kubeconfig: str, namespace: str) -> list[Service]:
    """Returns the Services that become variables in `namespace`, from the server at this URL or of a kubeconfig.

    Raises KubeconfigError and ApiServerError, and InputError for a namespace that does not exist.
    """
    from kdns.cluster.io.connection import Connection, RestStats  # noqa: PLC0415
    from kdns.cluster.source import Source  # noqa: PLC0415

    async with Connection(Source(kubeconfig=kubeconfig, endpoint=server), RestStats(), Timing()) as connection:

        def refuse(failure: DecodeFailure) -> NoReturn:
            raise ApiServerError(connection.server, f"not the answer of a Kubernetes API: {failure.reason}")

        resource = RESOURCES[Service]
        services = cast("list[Service]", await list_objects(connection, resource, refuse, namespace=namespace))
        if not services:
            await _check_namespace(connection, namespace)
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


async def _check_namespace(connection: Connection, name: str) -> None:
    """Raises InputError for a namespace that does not exist; one that may not be read passes."""
    try:
        await connection.get(f"/api/v1/namespaces/{name}", {})
    except ApiServerError as error:
        if error.status == 404:
            raise InputError(f"--namespace {name}: {connection.server} has no such namespace") from error
        if error.status not in {401, 403}:
            raise


def default_kubeconfig() -> str:
    """Returns the kubeconfig of kubectl: the files of $KUBECONFIG, else ~/.kube/config.

    Raises InputError if none exists.
    """
    paths = os.environ.get("KUBECONFIG", "").strip(os.pathsep) or "~/.kube/config"
    if any(map(os.path.isfile, paths_of(paths))):
        return paths
    raise InputError(f"no kubeconfig at {paths}: give --kubeconfig FILE, --server URL or --manifests PATH")
