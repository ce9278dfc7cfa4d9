"""Real kubectl, unchanged, against the server on loopback: the commands a person uses on Services and around them.

No controllers run here: what is shown is the API alone.
"""

import asyncio

from kubectl_api import Kubectl
from served_kinds import REVIEWS, SERVED

from kdns.controlplane.apimachinery.kinds import SERVICE
from kdns.controlplane.server.registry import Request

SERVICE_YAML = """
apiVersion: v1
kind: Service
metadata:
  name: my-service
  labels: {app: web}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 9376}
"""
POD_YAML = """
apiVersion: v1
kind: Pod
metadata: {name: web-0, labels: {app: web}}
spec:
  nodeName: node-1
  containers:
  - {name: web, image: nginx, ports: [{containerPort: 9376}]}
"""


async def test_apply_edit_and_delete(kubectl: Kubectl) -> None:
    unknown = await kubectl.run("apply -f -", SERVICE_YAML.replace("spec:", "spec:\n  foo: 1"))
    assert 'strict decoding error: unknown field "spec.foo"' in unknown.err
    assert await kubectl("apply -f -", SERVICE_YAML) == "service/my-service created\n"
    assert await kubectl("apply -f -", SERVICE_YAML) == "service/my-service unchanged\n"
    changed = SERVICE_YAML.replace("port: 80", "port: 81").replace("app: web}\nspec", "app: web, tier: front}\nspec")
    assert (await kubectl.run("diff -f -", changed)).code == 1
    assert await kubectl("apply -f -", changed) == "service/my-service configured\n"
    assert [port["port"] for port in kubectl.service()["spec"]["ports"]] == [81], "the port list merged by its key"
    assert kubectl.service()["metadata"]["labels"] == {"app": "web", "tier": "front"}
    assert await kubectl("apply --server-side=false --dry-run=server -f -", SERVICE_YAML) == (
        "service/my-service configured (server dry run)\n"
    )
    kubectl.edit_with('sed -i "s/targetPort: 9376/targetPort: 9999/" "$1"')
    assert await kubectl("edit svc my-service") == "service/my-service edited\n"
    assert kubectl.service()["spec"]["ports"][0]["targetPort"] == 9999
    assert await kubectl("delete -f -", SERVICE_YAML) == 'service "my-service" deleted\n'
    assert "NotFound" in (await kubectl.run("get svc my-service")).err


async def test_create_in_protobuf(kubectl: Kubectl) -> None:
    await kubectl("create namespace team")
    await kubectl("create service clusterip a --tcp=80:8080 -n team")
    await kubectl("create service nodeport b --tcp=5678:http -n team")
    await kubectl("create service externalname c --external-name=example.com -n team")
    await kubectl("create service clusterip d --clusterip=None -n team")
    found = {obj["metadata"]["name"]: obj["spec"] for obj in kubectl.api.list(Request(SERVICE, "team")).items}
    assert found["a"]["ports"] == [{"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080}]
    assert found["a"]["selector"] == {"app": "a"}
    assert found["b"]["ports"][0]["targetPort"] == "http"
    assert found["b"]["ports"][0]["nodePort"] >= 30000
    assert found["c"]["externalName"] == "example.com"
    assert found["d"]["clusterIP"] == "None"
    assert (await kubectl.run("create namespace team")).err == (
        'Error from server (AlreadyExists): namespaces "team" already exists\n'
    )
    assert await kubectl("delete namespace team") == 'namespace "team" deleted\n'
    assert kubectl.api.list(Request(SERVICE, "team")).items == []


async def test_get(kubectl: Kubectl) -> None:
    await kubectl("create -f -", f"{SERVICE_YAML}\n---\n{POD_YAML}")
    table = (await kubectl("get svc")).splitlines()
    assert table[0].split() == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    assert table[1].split()[:2] == ["my-service", "ClusterIP"]
    assert table[1].split()[4] == "80/TCP"
    rows = {
        "get svc -o wide": "app=web",
        "get svc my-service -o yaml": "targetPort: 9376",
        "get svc -o json": '"kind": "List"',
        "get svc,po -o name": "service/my-service\npod/web-0\n",
        "get svc -A": "default",
        "get svc -l app=web --show-labels": "app=web",
        "get svc -l app!=web -o name": "",
        "get po --field-selector spec.nodeName=node-1 -o name": "pod/web-0",
        "get po --field-selector status.phase=Succeeded -o name": "",
        "get all -o name": "service/my-service",
        "get svc my-service -o jsonpath={.spec.ports[0].port}": "80",
        "get svc --sort-by=.metadata.name -o custom-columns=N:.metadata.name": "my-service",
        "get svc --chunk-size=1 -o name -A": "service/my-service",
        "get --raw /api/v1/namespaces/default/services/my-service": '"kind":"Service"',
        "get ep,endpointslices,no,ev,ns": "namespace/default",
    }
    for command, text in rows.items():
        assert text in await kubectl(command), command
    assert (await kubectl.run("get svc none")).err == 'Error from server (NotFound): services "none" not found\n'
    assert "the server doesn't have a resource type" in (await kubectl.run("get gadgets")).err
    assert "field label not supported" in (await kubectl.run("get po --field-selector=a=b")).err


async def test_change(kubectl: Kubectl) -> None:
    await kubectl("create -f -", SERVICE_YAML)
    strategic = '{"spec":{"ports":[{"name":"https","port":443}]}}'
    await kubectl(f"patch svc my-service -p {strategic}")
    assert {port["port"] for port in kubectl.service()["spec"]["ports"]} == {80, 443}
    await kubectl('patch svc my-service --type=merge -p {"spec":{"ports":[{"port":90}]}}')
    assert [port["port"] for port in kubectl.service()["spec"]["ports"]] == [90]
    await kubectl('patch svc my-service --type=json -p [{"op":"replace","path":"/spec/ports/0/port","value":91}]')
    assert [port["port"] for port in kubectl.service()["spec"]["ports"]] == [91]
    failed = await kubectl.run('patch svc my-service --type=json -p [{"op":"remove","path":"/spec/none"}]')
    assert failed.err == "The request is invalid: the server rejected our request due to an error in our request\n"
    await kubectl("label svc my-service tier=front app-")
    assert kubectl.service()["metadata"]["labels"] == {"tier": "front"}
    await kubectl("annotate svc my-service example.com/note=hello")
    assert kubectl.service()["metadata"]["annotations"]["example.com/note"] == "hello"
    stale = await kubectl("get svc my-service -o json")
    await kubectl("label svc my-service tier=back --overwrite")
    conflict = await kubectl.run("replace -f -", stale)
    assert "the object has been modified; please apply your changes to the latest version and try again" in conflict.err
    fresh = (await kubectl("get svc my-service -o json")).replace('"port": 91', '"port": 92')
    assert await kubectl("replace -f -", fresh) == "service/my-service replaced\n"
    await kubectl("replace --force -f -", SERVICE_YAML)
    await kubectl("set selector svc my-service app=other")
    assert kubectl.service()["spec"]["selector"] == {"app": "other"}


async def test_discovery(kubectl: Kubectl) -> None:
    resources = await kubectl("api-resources --no-headers -o name")
    listed = (*SERVED, *REVIEWS)
    assert set(resources.split()) == {f"{kind.plural}.{kind.group}".rstrip(".") for kind in listed}
    assert set((await kubectl("api-versions")).split()) == {kind.api_version for kind in listed}


async def test_watch(kubectl: Kubectl) -> None:
    process = await kubectl.start("get", "svc", "-w", "--output-watch-events")
    assert process.stdout
    async with asyncio.timeout(90):
        await kubectl("create -f -", SERVICE_YAML)
        assert (await process.stdout.readline()).split()[:2] == [b"EVENT", b"NAME"]
        for event, command in (
            ("ADDED", "label svc my-service a=b"),
            ("MODIFIED", "delete svc my-service"),
            ("DELETED", ""),
        ):
            assert (await process.stdout.readline()).decode().split()[:2] == [event, "my-service"]
            if command:
                await kubectl(command)
        process.terminate()
        await process.communicate()
