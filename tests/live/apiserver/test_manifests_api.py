"""Manifests against the real API: allocation, defaults, validation and namespaces included."""

from ipaddress import ip_network
from pathlib import Path

import pytest
from object_api import Api

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import IP_ADDRESS, NAMESPACE, POD, SERVICE
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.manifests.io.follower import Applied, ManifestFollower
from kdns.controlplane.server.registry import Registry, Request

EXAMPLES = Path(__file__).parents[3] / "examples"

NODE_PORT = """\
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
spec:
  type: NodePort
  ports:
  - name: http
    port: 80
"""


@pytest.fixture
def api() -> Registry:
    config = ClusterConfig(service_cidrs=(ip_network("10.96.0.0/16"), ip_network("fd00:10:96::/112")))
    return Api(config=config).registry


@pytest.fixture
def problems() -> list[str]:
    return []


def follower(api: Registry, folder: Path, problems: list[str]) -> ManifestFollower:
    return ManifestFollower(
        api, [folder], report=lambda problem: problems.append(str(problem).replace(f"{folder}/", ""))
    )


async def settled(follower: ManifestFollower) -> Applied:
    await follower.scan()
    return await follower.scan()


async def test_the_examples_apply_and_a_second_start_changes_nothing(api: Registry, problems: list[str]) -> None:
    done = await follower(api, EXAMPLES, problems).start()
    assert (problems, done.refused, done.deleted) == ([], 0, 0)
    assert done.applied > 15
    assert api.get(Request(SERVICE, "default", "redis-master"))["spec"]["clusterIP"] == "10.96.0.11"
    assert api.get(Request(SERVICE, "default", "dual-stack"))["spec"]["clusterIPs"] == ["10.96.0.40", "fd00:10:96::40"]
    assert api.get(Request(POD, "default", "my-app-1"))["status"]["podIP"] == "10.244.1.11"
    before = api.store.revision
    again = await follower(api, EXAMPLES, problems).start()
    assert (again.applied, again.deleted, again.refused) == (done.applied, 0, 0)
    assert api.store.revision == before


async def test_allocated_values_survive_an_edit(api: Registry, tmp_path: Path, problems: list[str]) -> None:
    file = tmp_path / "a.yaml"
    namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
    file.write_text(NODE_PORT + namespace)
    following = follower(api, tmp_path, problems)
    assert await following.start() == Applied(applied=2)
    first = api.get(Request(SERVICE, "shop", "web"))["spec"]
    assert first["ports"][0]["nodePort"]
    edited = NODE_PORT + "    targetPort: 8080\n  - name: https\n    port: 443\n" + namespace
    file.write_text(edited)
    assert await settled(following) == Applied(applied=1)
    second = api.get(Request(SERVICE, "shop", "web"))["spec"]
    assert (second["clusterIP"], second["ports"][0]["nodePort"]) == (first["clusterIP"], first["ports"][0]["nodePort"])
    assert [port["targetPort"] for port in second["ports"]] == [8080, 443]
    file.write_text(edited.replace("NodePort", "ClusterIP"))
    assert await settled(following) == Applied(applied=1)
    third = api.get(Request(SERVICE, "shop", "web"))["spec"]
    assert (third["type"], [port.get("nodePort") for port in third["ports"]]) == ("ClusterIP", [None, None])
    file.write_text(namespace)
    assert await settled(following) == Applied(deleted=1)
    with pytest.raises(StatusError):
        api.get(Request(SERVICE, "shop", "web"))
    assert problems == []


async def test_what_the_api_refuses_is_told_at_its_line_and_mended(
    api: Registry, tmp_path: Path, problems: list[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(NODE_PORT.replace("port: 80", "port: 80808").replace("shop", "default") + "---\n" + NODE_PORT)
    following = follower(api, tmp_path, problems)
    assert await following.start() == Applied(refused=2)
    assert problems[0].startswith("a.yaml:10: spec.ports[0].port: Invalid value: ")
    assert problems[1].startswith("a.yaml:9: spec.ports[0].targetPort: Invalid value: ")
    assert problems[2] == 'a.yaml:12: namespaces "shop" not found'
    api.create(Request(NAMESPACE), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    assert await following.scan() == Applied(applied=1, refused=1)
    file.write_text(NODE_PORT)
    assert await settled(following) == Applied()
    assert len(problems) == 3


async def test_readiness_of_a_pod_follows_its_manifest(api: Registry, tmp_path: Path, problems: list[str]) -> None:
    file = tmp_path / "pod.yaml"
    text = (EXAMPLES / "redis-master.yaml").read_text()
    file.write_text(text)
    following = follower(api, tmp_path, problems)
    await following.start()
    file.write_text(text.replace('status: "True"', 'status: "False"'))
    assert await settled(following) == Applied(applied=1)
    conditions = api.get(Request(POD, "default", "redis-master"))["status"]["conditions"]
    assert [one["status"] for one in conditions if one["type"] == "Ready"] == ["False"]
    assert problems == []


FIXED = """\
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: default
spec:
  clusterIP: 10.96.0.20
  ports:
  - port: 80
"""


async def look_twice(follows: ManifestFollower) -> None:
    """A change is read once it was left alone for one look."""
    await follows.scan()
    await follows.scan()


async def test_another_cluster_ip_makes_the_service_anew(api: Registry, tmp_path: Path, problems: list[str]) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(FIXED)
    follows = follower(api, tmp_path, problems)
    await follows.start()
    uid = api.get(Request(SERVICE, "default", "web"))["metadata"]["uid"]
    path.write_text(FIXED.replace("0.20", "0.201"))
    await look_twice(follows)
    made = api.get(Request(SERVICE, "default", "web"))
    assert (made["spec"]["clusterIP"], problems) == ("10.96.0.201", [])
    assert made["metadata"]["uid"] != uid
    path.write_text(FIXED.replace("0.20", "99.999"))
    await look_twice(follows)
    assert api.get(Request(SERVICE, "default", "web"))["spec"]["clusterIP"] == "10.96.0.201"
    assert len(problems) == 1


async def test_a_finalizer_delays_the_service_that_is_made_anew(
    api: Registry, tmp_path: Path, problems: list[str]
) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(FIXED)
    follows = follower(api, tmp_path, problems)
    await follows.start()
    held = api.get(Request(SERVICE, "default", "web"))
    api.update(
        Request(SERVICE, "default", "web"), {**held, "metadata": {**held["metadata"], "finalizers": ["example.com/f"]}}
    )
    path.write_text(FIXED.replace("0.20", "0.201"))
    await look_twice(follows)
    going = api.get(Request(SERVICE, "default", "web"))
    assert (going["spec"]["clusterIP"], "deletionTimestamp" in going["metadata"]) == ("10.96.0.20", True)
    assert ["being deleted" in problem for problem in problems] == [True]
    going["metadata"].pop("finalizers")
    api.update(Request(SERVICE, "default", "web"), going)
    await follows.scan()
    assert api.get(Request(SERVICE, "default", "web"))["spec"]["clusterIP"] == "10.96.0.201"


async def test_what_is_made_anew_may_keep_its_numbers(api: Registry, tmp_path: Path, problems: list[str]) -> None:
    path = tmp_path / "web.yaml"
    text = FIXED.replace("spec:\n", "spec:\n  type: NodePort\n").replace("port: 80", "port: 80\n    nodePort: 30080")
    path.write_text(text)
    follows = follower(api, tmp_path, problems)
    await follows.start()
    path.write_text(text.replace("0.20", "0.201"))
    await look_twice(follows)
    made = api.get(Request(SERVICE, "default", "web"))["spec"]
    assert (made["clusterIP"], made["ports"][0]["nodePort"], problems) == ("10.96.0.201", 30080, [])
    assert [each["metadata"]["name"] for each in api.list(Request(IP_ADDRESS)).items] == ["10.96.0.201"]


@pytest.mark.parametrize(
    ("address", "reason"), [("10.96.0.21", "already allocated"), ("192.0.2.1", "is not in the valid range")]
)
async def test_an_address_that_cannot_be_allocated_leaves_the_service_as_it_was(
    api: Registry, tmp_path: Path, problems: list[str], address: str, reason: str
) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(FIXED)
    follows = follower(api, tmp_path, problems)
    await follows.start()
    other = {"metadata": {"name": "other"}, "spec": {"clusterIP": "10.96.0.21", "ports": [{"port": 80}]}}
    api.create(Request(SERVICE, "default"), other)
    before = api.get(Request(SERVICE, "default", "web"))
    path.write_text(FIXED.replace("10.96.0.20", address) + "# of another length: a file system's clock may be slow\n")
    await look_twice(follows)
    assert api.get(Request(SERVICE, "default", "web")) == before
    assert reason in problems[0]
    path.write_text(FIXED.replace("0.20", "0.201"))
    await look_twice(follows)
    assert api.get(Request(SERVICE, "default", "web"))["spec"]["clusterIP"] == "10.96.0.201"


async def test_every_mistake_of_an_object_is_reported_as_by_check(
    api: Registry, tmp_path: Path, problems: list[str]
) -> None:
    """Addresses and node ports are allocated before other rules are looked at, and unknown fields come first of all."""
    api.create(Request(NAMESPACE), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    text = f"{NODE_PORT}    nodePort: 80\n    targetPort: a b\n  clusterIP: 192.0.2.1\n  sessionAffinity: x\n  typ: x\n"
    (tmp_path / "a.yaml").write_text(text)
    await follower(api, tmp_path, problems).start()
    found = {problem.split(": ")[0]: problem.split(": ")[1] for problem in problems}
    assert found == {
        "a.yaml:11": "spec.ports[0].nodePort",
        "a.yaml:12": "spec.ports[0].targetPort",
        "a.yaml:13": "spec.clusterIPs",
        "a.yaml:14": "spec.sessionAffinity",
        "a.yaml:15": "spec.typ",
    }
    assert not api.list(Request(SERVICE, "shop")).items, "nothing was stored"
