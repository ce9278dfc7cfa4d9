"""deploy/node-local/: what the parts say of each other, and what the container may do."""

from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from configured import configured

from kdns.cli.commands.serve import serve
from kdns.node_local.settings import CLUSTER_DNS, NodeLocal, service_host
from kdns.runtime.files.yaml import documents

DEPLOY = Path(__file__).parents[3] / "deploy" / "node-local"
FILES = [DEPLOY / name for name in yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]]
OBJECTS: dict[str, Any] = {
    doc.value["kind"]: doc.value for path in FILES for doc in documents(str(path), path.read_text())
}
POD: dict[str, Any] = OBJECTS["DaemonSet"]["spec"]["template"]["spec"]
CONTAINER: dict[str, Any] = POD["containers"][0]
ARGUMENTS = dict(zip(CONTAINER["args"][::2], CONTAINER["args"][1::2], strict=True))


def test_all_files_are_in_the_kustomization() -> None:
    assert {path.name for path in FILES} | {"kustomization.yaml"} == {path.name for path in DEPLOY.glob("*.yaml")}
    assert {obj["metadata"]["namespace"] for obj in OBJECTS.values()} == {"kube-system"}


def test_the_corefile_listens_on_the_addresses_that_the_container_is_given() -> None:
    text = OBJECTS["ConfigMap"]["data"]["Corefile"]
    assert CLUSTER_DNS in text
    local = NodeLocal(tuple(ARGUMENTS["-localip"].split(",")), cluster_dns="10.96.0.99")
    blocks = configured(local.with_variables(text))
    assert [block.zones for block in blocks] == [("cluster.local.",), ("in-addr.arpa.",), ("ip6.arpa.",), (".",)]
    bound = {tuple(each.hosts) for block in blocks for each in block.directives["bind"]}  # type: ignore[attr-defined]
    assert bound == {local.addresses}


def test_the_upstream_service_reaches_the_clusters_dns_servers() -> None:
    service = OBJECTS["Service"]
    assert ARGUMENTS["-upstreamsvc"] == service["metadata"]["name"]
    variable = service["metadata"]["name"].upper().replace("-", "_") + "_SERVICE_HOST"
    assert service_host(ARGUMENTS["-upstreamsvc"], {variable: "10.96.0.99"}) == "10.96.0.99"
    assert service["spec"]["selector"] == {"k8s-app": "kube-dns"}
    assert POD["enableServiceLinks"] is True


def test_the_container_changes_the_node_and_nothing_in_the_cluster() -> None:
    assert POD["hostNetwork"] is True
    assert POD["automountServiceAccountToken"] is OBJECTS["ServiceAccount"]["automountServiceAccountToken"] is False
    context = CONTAINER["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_BIND_SERVICE"]}
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False


def test_the_command_has_its_arguments() -> None:
    shown = CliRunner().invoke(serve, ["--help"]).output
    assert [argument for argument in ARGUMENTS if argument not in shown] == []
