"""What kustomizations leave out of folders of manifests, and which manifests are alternatives."""

from pathlib import Path

import pytest
from served_kinds import CATALOGUE

from kdns.controlplane.apimachinery.kinds import SERVICE
from kdns.controlplane.manifests.io.files import Scanner, load
from kdns.controlplane.manifests.kustomization import Kustomization, clusters, kustomization, left_out
from kdns.controlplane.manifests.manifest import Manifest

HEAD = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}


def made(path: str, **fields: object) -> Kustomization:
    found = kustomization(path, 1, HEAD | fields)
    assert found
    return found


@pytest.mark.parametrize(
    ("path", "value", "is_one"),
    [
        ("x.yaml", HEAD, True),
        ("x.yaml", {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}, True),
        ("a/kustomization.yml", {"resources": []}, True),
        ("a/kustomization.yml", {"apiVersion": "v1", "kind": "Service"}, False),
        ("a/service.yml", {"resources": []}, False),
        ("a/kustomization.yml", [], False),
    ],
)
def test_what_is_a_kustomization(path: str, value: object, *, is_one: bool) -> None:
    assert (kustomization(path, 1, value) is not None) == is_one


def test_files_that_are_named_and_no_resources_are_left_out() -> None:
    over = made(
        "over/kustomization.yaml",
        resources=["../base", "own.yaml", "both.yaml"],
        patches=[{"path": "patch.yaml"}, {"path": "../shared/json.yaml", "target": {"kind": "Service"}}],
        patchesStrategicMerge=["old.yaml", "apiVersion: v1\nkind: inline.yaml"],
        configMapGenerator=[{"name": "c", "files": ["settings=values.yaml", "both.yaml"]}],
    )
    paths = ("own", "both", "patch", "old", "values", "inline", "other")
    files = [*(f"./over/{name}.yaml" for name in paths), "base/../shared/json.yaml"]
    wanted = {"./over/patch.yaml", "./over/old.yaml", "./over/values.yaml", "base/../shared/json.yaml"}
    assert left_out(files, [over]) == wanted
    assert (over.has_effects, made("kustomization.yaml", resources=["a.yaml"]).has_effects) == (True, False)


def test_what_no_kustomization_has_together_is_alternatives() -> None:
    kustomizations = [
        made("base/kustomization.yaml", resources=["web.yaml", "db.yaml"]),
        made("dev/kustomization.yaml", resources=["../base", "web.yaml", "loop"]),
        made("dev/loop/kustomization.yaml", resources=["..", "../loop"]),
        made("prod/kustomization.yaml", resources=["../base", "cart.yaml"]),
        made("test/kustomization.yaml", resources=["cart.yaml"]),
    ]
    files = ("base/web", "base/db", "dev/web", "prod/cart", "test/cart", "cart")
    manifests = [Manifest(f"{path}.yaml", 1, SERVICE, "default", path.rpartition("/")[2], "{}") for path in files]
    together = [[each.path.removesuffix(".yaml") for each in layer] for layer in clusters(manifests, kustomizations)]
    assert together == [
        ["base/web", "dev/web", "base/db", "prod/cart", "cart"],
        ["base/web", "dev/web", "base/db", "test/cart"],
    ]
    assert [len(layer) for layer in clusters(manifests, [])] == [6]
    assert clusters([], []) == []


SERVICE_TEXT = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"


def test_a_folder_with_a_kustomization_is_without_its_patches(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SERVICE_TEXT)
    (tmp_path / "patch.yaml").write_text("- op: remove\n  path: /spec\n")
    kustomize = tmp_path / "kustomization.yaml"
    kustomize.write_text("resources: [a.yaml]\npatches: [{path: patch.yaml, target: {kind: Service}}]\n")
    manifests, unknown = load([tmp_path], CATALOGUE)
    assert ([manifest.name for manifest in manifests], unknown) == (["web"], [])
    scanner = Scanner([tmp_path], CATALOGUE)
    assert scanner.scan(settle=False)
    assert scanner.files.keys() == {tmp_path / "a.yaml", kustomize}
    kustomize.write_text("resources: [a.yaml, patch.yaml]\n")
    assert scanner.scan(settle=False)
    assert "got a list" in str(scanner.files[tmp_path / "patch.yaml"].errors[0])
