"""The Services of manifests, or listed once from an API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, cast

import msgspec

from kdns.apps.sources.snapshot import api_connection, snapshot_of
from kdns.apps.sources.source import ObjectSource
from kdns.cluster.io.pager import list_objects
from kdns.cluster.objects import Service
from kdns.cluster.watch import RESOURCES, DecodeFailure, check_object
from kdns.env import MASTER_SERVICE
from kdns.errors import ApiServerError, InputError

if TYPE_CHECKING:
    from kdns.cluster.io.connection import Connection


async def services_of(source: ObjectSource, namespace: str, warn: Callable[[str], None]) -> list[Service]:
    """The Services that become variables in `namespace`. Raises InputError and ApiServerError."""
    if not source.manifests:
        return await _services_from_server(source, namespace)
    from kdns.controlplane.bootstrap import api_service  # noqa: PLC0415 - late, as the control plane

    snapshot = await snapshot_of(source, warn)
    snapshot.check_namespace(namespace)
    services = snapshot.state.services
    services.setdefault(MASTER_SERVICE, msgspec.convert(api_service(source.cluster), Service))
    return list(services.values())


async def _services_from_server(source: ObjectSource, namespace: str) -> list[Service]:
    async with api_connection(source) as connection:

        def refuse(failure: DecodeFailure) -> NoReturn:
            raise ApiServerError(connection.server, f"not the answer of a Kubernetes API: {failure.reason}")

        resource = RESOURCES[Service]
        services = cast("list[Service]", await list_objects(connection, resource, refuse, namespace=namespace))
        if not services:
            await _check_namespace(connection, namespace)
        master_namespace, master_name = MASTER_SERVICE
        if namespace != master_namespace:
            try:
                body = await connection.call("GET", f"{resource.path_in(master_namespace)}/{master_name}")
                check_object(resource, body)
                services.append(msgspec.json.decode(body, type=Service))
            except msgspec.DecodeError as error:
                raise ApiServerError(connection.server, f"not the answer of a Kubernetes API: {error}") from error
            except ApiServerError as error:
                if error.status != 404:
                    raise
        return services


async def _check_namespace(connection: Connection, name: str) -> None:
    """Raises InputError for a namespace that does not exist; passes if it may not be read."""
    try:
        await connection.call("GET", f"/api/v1/namespaces/{name}")
    except ApiServerError as error:
        if error.status == 404:
            raise InputError(f"--namespace {name}: {connection.server} has no such namespace") from error
        if error.status not in {401, 403}:
            raise
