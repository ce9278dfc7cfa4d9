"""Which object a write means: kind, namespace, name, uid and resourceVersion, in the body and in preconditions."""

from collections.abc import Callable
from functools import partial

import pytest
from object_api import HEADLESS, Api, refused

from kdns.controlplane.apimachinery.inert import LEASE
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, DEPLOYMENT, SERVICE, Json, Kind
from kdns.controlplane.schema.field_validation import FieldValidator
from kdns.controlplane.server.patch import JSON_PATCH, STRATEGIC_MERGE_PATCH

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
TEMPLATE: Json = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
SPECS: dict[Kind, Json] = {
    CONFIG_MAP: {"data": {"a": "b"}},
    DEPLOYMENT: {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}},
    LEASE: {"spec": {}},
    SERVICE: {"spec": HEADLESS},
}


def obj(kind: Kind, name: str = "a", **metadata: str) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, **metadata}, **SPECS[kind]}


def scale(**metadata: str) -> Json:
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a", **metadata}, "spec": {}}


@pytest.fixture
def api() -> Api:
    api = Api()
    for kind in SPECS:
        api.create(kind, obj(kind))
    return api


def writes(api: Api, kind: Kind, **metadata: str) -> list[Callable[[], object]]:
    """The writes of an object that exists with these metadata sent: PUT, the patches, and an apply."""
    replaced = [{"op": "add", "path": f"/metadata/{name}", "value": value} for name, value in metadata.items()]
    return [
        lambda: api.update(kind, "a", obj(kind, **metadata)),
        lambda: api.patch(kind, "a", {"metadata": metadata}),
        lambda: api.patch(kind, "a", {"metadata": metadata}, STRATEGIC_MERGE_PATCH),
        lambda: api.patch(kind, "a", replaced, JSON_PATCH),
        lambda: api.apply(kind, "a", obj(kind, **metadata), manager="me", force=True),
    ]


@pytest.mark.parametrize("revision", ["0", "", "00"])
def test_revision_zero_is_unconditional(api: Api, revision: str) -> None:
    for write in writes(api, CONFIG_MAP, resourceVersion=revision):
        write()
    sent = obj(DEPLOYMENT, resourceVersion=revision)
    api.update(DEPLOYMENT, "a", sent, subresource="status")
    api.update(DEPLOYMENT, "a", scale(resourceVersion=revision), subresource="scale")
    why = 'leases.coordination.k8s.io "a" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified'
    for write in writes(api, LEASE, resourceVersion=revision):
        assert (refused(422, why, write).details or {})["kind"] == "leases"


@pytest.mark.parametrize(
    ("revision", "code", "message"),
    [
        ("1", 409, MODIFIED),
        ("x", 500, 'strconv.ParseUint: parsing "x": invalid syntax'),
        ("-1", 500, 'strconv.ParseUint: parsing "-1": invalid syntax'),
        ("18446744073709551616", 500, 'strconv.ParseUint: parsing "18446744073709551616": value out of range'),
    ],
)
def test_another_revision(api: Api, revision: str, code: int, message: str) -> None:
    scaled = scale(resourceVersion=revision)
    for write in (
        *writes(api, CONFIG_MAP, resourceVersion=revision),
        *writes(api, LEASE, resourceVersion=revision),
        lambda: api.update(DEPLOYMENT, "a", obj(DEPLOYMENT, resourceVersion=revision), subresource="status"),
        lambda: api.update(DEPLOYMENT, "a", scaled, subresource="scale"),
        lambda: api.patch(DEPLOYMENT, "a", scaled, subresource="scale"),
    ):
        error = refused(code, message, write)
        assert error.reason == ("Conflict" if code == 409 else "")


@pytest.mark.parametrize(("revision", "code"), [("0", 0), ("", 0), ("x", 0), ("1", 500)])
def test_a_post_has_no_revision(api: Api, revision: str, code: int) -> None:
    def call() -> Json:
        return api.create(CONFIG_MAP, obj(CONFIG_MAP, "new", resourceVersion=revision))

    if code:
        refused(code, "resourceVersion should not be set on objects to be created", call)
    else:
        assert call()["metadata"]["resourceVersion"] == str(api.store.revision)


@pytest.mark.parametrize("revision", ["0", "7"])
def test_a_put_or_an_apply_creates_whatever_the_revision_is(api: Api, revision: str) -> None:
    api.update(LEASE, "put", obj(LEASE, "put", resourceVersion=revision))
    api.apply(CONFIG_MAP, "new", obj(CONFIG_MAP, "new", resourceVersion=revision), manager="me")


def test_a_put_with_another_uid_is_a_conflict(api: Api) -> None:
    service, deployment = (api.get(kind, "a")["metadata"]["uid"] for kind in (SERVICE, DEPLOYMENT))
    sent, sent_scale = obj(SERVICE, uid="other"), {"metadata": {"uid": "other"}}
    for name, found, call in (
        ('services "a"', service, lambda: api.update(SERVICE, "a", sent)),
        ('services "b"', "", lambda: api.update(SERVICE, "b", obj(SERVICE, "b", uid="other"))),
        ('deployments.apps "a"', deployment, lambda: api.patch(DEPLOYMENT, "a", sent_scale, subresource="scale")),
        ('configmaps "b"', "", lambda: api.apply(CONFIG_MAP, "b", obj(CONFIG_MAP, "b", uid="other"), manager="me")),
    ):
        why = f"the UID in the precondition (other) does not match the UID in record ({found})"
        refused(409, f"Operation cannot be fulfilled on {name}: {why}", call)
    update_scale = partial(api.update, DEPLOYMENT, "a", scale(uid="other"), subresource="scale")
    refused(409, f"the UID in the precondition (other) does not match the UID in record ({deployment})", update_scale)
    refused(404, '"b" not found', lambda: api.update(CONFIG_MAP, "b", obj(CONFIG_MAP, "b", uid="other")))


def test_a_patch_with_another_uid_is_invalid(api: Api) -> None:
    why = 'ConfigMap "a" is invalid: metadata.uid: Invalid value: "other": field is immutable'
    for write in writes(api, CONFIG_MAP, uid="other")[1:]:
        error = refused(422, why, write)
        assert len((error.details or {})["causes"]) == 2, "once for all kinds, once for this one"


@pytest.mark.parametrize(
    ("preconditions", "text"),
    [
        ({"uid": "u"}, "the UID in the precondition (u) does not match the UID in record (uid-2). The object might"),
        ({"uid": ""}, "the UID in the precondition () does not match the UID in record (uid-2)"),
        ({"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match the ResourceVersion in"),
        ({"resourceVersion": "0"}, "record (3). The object might have been modified"),
        ({"resourceVersion": ""}, "the ResourceVersion in the precondition () does not match"),
    ],
)
def test_preconditions_of_a_delete(api: Api, preconditions: Json, text: str) -> None:
    def delete() -> object:
        return api.delete(CONFIG_MAP, "a", {"preconditions": preconditions})

    error = refused(409, text, delete)
    assert error.message.startswith('Operation cannot be fulfilled on ConfigMap "a": the ')
    assert error.details == {"kind": "ConfigMap", "name": "a"}


NAMELESS = "the name of the object (a based on URL) was undeterminable: name must be provided"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "other"}, "the name of the object (other) does not match the name on the URL (a)"),
        ({"name": ""}, NAMELESS),
        ({"name": "other", "namespace": "other"}, "the namespace of the provided object does not match the namespace"),
    ],
)
def test_another_address(api: Api, change: dict[str, str], message: str) -> None:
    for write in writes(api, CONFIG_MAP, **change):
        refused(400, message, write)
    refused(400, message, lambda: api.update(DEPLOYMENT, "a", scale(**change), subresource="scale"))


def test_a_put_without_a_name(api: Api) -> None:
    refused(400, NAMELESS, lambda: api.update(CONFIG_MAP, "a", {}))
    refused(404, '"b" not found', lambda: api.update(CONFIG_MAP, "b", obj(CONFIG_MAP, "b")))


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("v1", "Secret"),
        ("apps/v1", "DeploymentList"),
        ("v2", "ConfigMap"),
        ("apps/v1", "ConfigMap"),
        ("v1", "configmap"),
    ],
)
def test_another_kind(api: Api, api_version: str, kind: str) -> None:
    sent = {**obj(CONFIG_MAP), "apiVersion": api_version, "kind": kind}
    message = f"expected kind ConfigMap of v1, got kind {kind} of {api_version}"
    refused(400, message, lambda: FieldValidator(CONFIG_MAP, "Warn")(sent))
    validator = FieldValidator(CONFIG_MAP, "Warn", is_patch=True)
    error = refused(422, message, lambda: api.patch(CONFIG_MAP, "a", sent, validate=validator))
    assert error.message.startswith(' "" is invalid: patch: Invalid value: "{')
    patched = api.patch(CONFIG_MAP, "a", sent, STRATEGIC_MERGE_PATCH, validate=validator)
    assert (patched["apiVersion"], patched["kind"]) == ("v1", "ConfigMap"), "a strategic patch has no kind"
    shown = f"{api_version if '/' in api_version else f'/{api_version}'}, Kind={kind}"
    refused(400, f"invalid object type: {shown}", lambda: api.apply(CONFIG_MAP, "other", sent, manager="me"))
