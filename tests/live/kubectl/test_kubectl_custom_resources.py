"""kubectl on the kinds of CustomResourceDefinitions."""

import json

import pytest
from kubectl_api import Kubectl
from widgets import definition, version, widget

CRD = json.dumps(definition(version("v1beta1", storage=False), version("v1")))
ONE = json.dumps(widget("one", rules=[{"name": "a"}]))


@pytest.fixture(autouse=True)
async def _defined(kubectl: Kubectl) -> None:
    await kubectl("apply -f -", CRD)
    await kubectl("wait --for=condition=Established crd/widgets.example.com --timeout=60s")


async def test_a_kind_is_found_explained_and_printed(kubectl: Kubectl) -> None:
    assert "widgets" in await kubectl("api-resources --api-group=example.com -o wide")
    assert "widgets.example.com" in await kubectl("get crd")
    await kubectl("apply -f -", ONE)
    header, row = (await kubectl("get wd")).splitlines()
    assert header.split() == ["NAME", "COLOR", "REPLICAS", "AGE"]
    assert row.split()[:3] == ["one", "red", "1"]
    assert "READY" in await kubectl("get wd -o wide")
    explained = await kubectl("explain widget.spec.color")
    assert "Its color." in explained
    assert {"red", "blue"} <= {*explained.replace(",", "").split()}
    assert "The resource this object is" in await kubectl("explain widget.kind")
    assert "FIELD: color" in await kubectl("explain widget.spec.color --api-version=example.com/v1beta1")
    assert "Color:" in await kubectl("describe wd one")
    assert "widget.example.com/one" in await kubectl("get all")
    assert "apiVersion: example.com/v1beta1" in await kubectl("get widgets.v1beta1.example.com one -o yaml")


async def test_objects_are_applied_scaled_patched_and_refused(kubectl: Kubectl) -> None:
    await kubectl("apply --server-side -f -", ONE)
    await kubectl("scale wd one --replicas=3")
    assert await kubectl("get wd one -o jsonpath={.spec.replicas}") == "3"
    await kubectl("""patch wd one --subresource=status --type=merge -p {"status":{"replicas":3}}""")
    await kubectl("""patch wd one --type=json -p [{"op":"replace","path":"/spec/color","value":"blue"}]""")
    conflict = await kubectl.run("apply --server-side --field-manager=other -f -", ONE)
    assert 'conflict with "kubectl-patch"' in conflict.err
    refused = await kubectl.run("apply -f -", json.dumps(widget("two", color="green")))
    assert 'spec.color: Unsupported value: "green": supported values: "red", "blue"' in refused.err
    unknown = await kubectl.run("apply -f -", json.dumps(widget("two", colour="red")))
    assert 'unknown field "spec.colour"' in unknown.err
    strategic = await kubectl.run("""patch wd one --type=strategic -p {"spec":{}}""")
    assert "strategic-merge-patch" in strategic.err
    await kubectl("wait --for=jsonpath={.status.replicas}=3 wd/one --timeout=60s")
