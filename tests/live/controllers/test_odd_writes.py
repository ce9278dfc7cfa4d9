"""Whatever clients write, within the schema: it is taken or refused, and no controller stumbles over it."""

import asyncio
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from served_kinds import KINDS
from structlog.testing import capture_logs
from test_controllers import Cluster
from yaml_file import yaml_file

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema.field_validation import FieldValidator
from kdns.controlplane.server.registry import Request

OBJECTS: Final = yaml_file(Path(__file__).parents[2] / "golden/odd_objects.yaml")
BY_TYPE: Final = {(kind.api_version, kind.kind): kind for kind in KINDS}
ODD: Final[tuple[Any, ...]] = (
    *(None, "", 0, -1, 1, True, [], {}, "x", "a" * 300, 2**31 - 1, [None], [{}], "None", "::1", "10.0.0.1", "a.b/c"),
    *("-1%", "101%", ["a", "a"], {"a": None}, "2020-01-01T00:00:00Z", 70000, "1Gi", "0-99999999999"),
)
MEANT: Final = ("allocate", "resourceVersion")
"""What 500 is the API's own answer to."""

HOW_MANY: Final = {"replicas", "completions", "parallelism"}
"""Fields that are taken at their word: thousands of Pods would be made."""

TROUBLE: Final = {"controller failed", "controllers failed, restarting", "controller failed to observe"}


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside a value."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in rows for found in ((value, key), *places(inner))]


def changed(obj: Json, random: Random) -> Json:
    """The object with some of its values replaced or left out."""
    obj = deepcopy(obj)
    for _ in range(random.choice([0, 1, 1, 2, 4])):
        body = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind"}}
        if not (inside := places(body)):
            break
        container, key = random.choice(inside)
        if container is body:
            container = obj
        if random.random() < 0.3:
            del container[key]
        else:
            value = deepcopy(random.choice(ODD))
            container[key] = 3 if key in HOW_MANY and isinstance(value, int) and value > 3 else value
    return obj


def write(cluster: Cluster, kind: Kind, name: str, obj: Json, random: Random) -> None:
    """One request, as the REST server passes it on."""
    space = "default" if kind.namespaced else ""
    what = random.choice(["create", "create", "update", "status", "status", "delete"])
    try:
        if what == "delete":
            cluster.api.delete(Request(kind, space, name))
            return
        obj = FieldValidator(kind, "Ignore")(obj)
        meta = obj.get("metadata") or {}
        obj["metadata"] = {**meta, "name": name}
        if what == "create":
            cluster.api.create(Request(kind, space, manager="test"), obj)
        else:
            below = "status" if what == "status" and "status" in kind.subresources else ""
            cluster.api.update(Request(kind, space, name, subresource=below, manager="test"), obj)
    except StatusError as error:
        if error.code >= 500 and not any(word in error.message for word in MEANT):
            raise


async def run(random: Random) -> None:
    cluster = Cluster()
    cluster.controllers.start()
    await cluster.settled()
    with capture_logs() as logs:
        for _ in range(20):
            obj = random.choice(OBJECTS)
            kind = BY_TYPE[obj["apiVersion"], obj["kind"]]
            write(cluster, kind, random.choice(["odd", "odd2"]), changed(obj, random), random)
            if random.random() < 0.5:
                await cluster.settled()
        await cluster.settled()
    cluster.controllers.close()
    assert [log for log in logs if log["event"] in TROUBLE] == []


@given(st.randoms(use_true_random=False))
def test_odd_writes(random: Random) -> None:
    asyncio.run(run(random))
