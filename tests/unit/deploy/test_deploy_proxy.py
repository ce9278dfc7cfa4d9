"""deploy/proxy/ gives the dataplane what it needs on a node and no more."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kdns import __version__
from kdns.cluster.io.credentials import credentials
from kdns.cluster.source import NodeScope, Source
from kdns.cluster.watch import RESOURCES
from kdns.proxy.ipvs.io.sysctls import useful_sysctls
from kdns.proxy.ipvs.settings import IpvsSettings
from kdns.proxy.node.io.host_settings import FOLDERS, sysctls
from kdns.proxy.settings.io.files import parse_settings
from kdns.proxy.settings.settings import Settings
from kdns.proxy.xtables.io.clean_up import ROUTE_LOCALNET
from kdns.runtime.files.yaml import documents

DEPLOY = Path(__file__).parents[3] / "deploy"
FOLDER = DEPLOY / "proxy"
FILES = [FOLDER / name for name in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]]
OBJECTS: dict[str, Any] = {doc.value["kind"]: doc.value for path in FILES for doc in documents("", path.read_text())}
POD: dict[str, Any] = OBJECTS["DaemonSet"]["spec"]["template"]["spec"]
CONTAINER: dict[str, Any] = POD["containers"][0]
IPVS_SYSCTLS = {"net/ipv4/ip_forward", *useful_sysctls(IpvsSettings(strict_arp=True), (4, 19))}
DATA: dict[str, str] = OBJECTS["ConfigMap"]["data"]


def settings() -> Settings:
    remarks: list[str] = []
    found = parse_settings("config.conf", DATA["config.conf"], remarks.append)
    assert remarks == []
    return found


def test_all_files_are_in_the_kustomization_and_not_in_that_of_dns() -> None:
    others = {"kustomization.yaml", "cleanup.yaml"}
    assert {path.name for path in FILES} | others == {path.name for path in FOLDER.iterdir()}
    assert "proxy" not in (DEPLOY / "kustomization.yaml").read_text()
    for kind, obj in OBJECTS.items():
        assert obj["metadata"].get("namespace") == (None if kind.startswith("ClusterRole") else "kube-system")


def test_the_role_allows_exactly_what_is_watched_and_written() -> None:
    allowed = {
        (group, resource, verb)
        for rule in OBJECTS["ClusterRole"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    watched = {(RESOURCES[kind].group, RESOURCES[kind].plural) for kind in NodeScope().kinds}
    assert allowed == {(*each, verb) for each in watched for verb in ("list", "watch")} | {("", "events", "create")}
    account = OBJECTS["ServiceAccount"]["metadata"]
    assert POD["serviceAccountName"] == account["name"]
    (subject,) = OBJECTS["ClusterRoleBinding"]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    assert OBJECTS["ClusterRoleBinding"]["roleRef"]["name"] == OBJECTS["ClusterRole"]["metadata"]["name"]


def test_the_container_may_change_the_nodes_network_and_nothing_else() -> None:
    assert POD["hostNetwork"] is True
    assert not {"hostPID", "hostIPC"} & set(POD)
    assert POD["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert CONTAINER["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
    }


def test_of_the_host_only_the_limits_of_connection_tracking_are_mounted() -> None:
    mounts = {mount["name"]: mount for mount in CONTAINER["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert mounts.keys() == volumes.keys() == {"config", "connection-tracking"}
    place = mounts["connection-tracking"]["mountPath"]
    assert volumes["connection-tracking"]["hostPath"] == {"path": "/proc/sys/net/netfilter", "type": "Directory"}
    wanted = sysctls(settings().conntrack, 8)
    assert wanted
    assert {str((FOLDERS[0] / name).parent) for name in wanted} == {place}


def test_the_configuration_is_mounted_where_the_arguments_say() -> None:
    (mount,) = (volume_mount for volume_mount in CONTAINER["volumeMounts"] if volume_mount["name"] == "config")
    assert mount["readOnly"] is True
    folder = mount["mountPath"]
    assert CONTAINER["args"] == [f"--config={folder}/config.conf", "--hostname-override=$(NODE_NAME)"]
    assert settings().client_connection.kubeconfig == f"{folder}/kubeconfig.conf"
    assert DATA.keys() == {"config.conf", "kubeconfig.conf"}


async def test_the_kubeconfig_uses_the_pods_account(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    path = tmp_path / "kubeconfig.conf"
    path.write_text(DATA["kubeconfig.conf"].replace("/var/run/secrets/kubernetes.io/serviceaccount", str(tmp_path)))
    (tmp_path / "ca.crt").write_text("")
    found = await credentials(Source(str(path)))
    assert found.host == "https://CONTROL-PLANE:6443"
    assert await found.get_api_key_with_prefix("BearerToken") == "Bearer secret"


def test_probes_ask_where_health_is_served() -> None:
    host, _, port = settings().healthz_bind_address.rpartition(":")
    assert host == "0.0.0.0"
    asked = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {each["port"] for each in asked.values()} == {int(port)}
    assert [each["path"] for each in asked.values()] == ["/livez", "/livez", "/healthz"]
    assert [each["containerPort"] for each in CONTAINER["ports"]] == [int(port)]


def test_every_node_has_it_as_early_and_as_long_as_kube_proxy() -> None:
    assert POD["priorityClassName"] == "system-node-critical"
    assert POD["tolerations"] == [{"operator": "Exists"}]
    assert POD["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert OBJECTS["DaemonSet"]["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    assert set(CONTAINER["resources"]["requests"]) == {"cpu", "memory"}


def test_the_image_has_what_it_takes() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    last = text.split("\nFROM ")[-1]
    assert {"nftables", "iptables"} <= set(last.split())
    assert CONTAINER["image"] == f"kdns:{__version__}"
    # An interpreter with a capability of its own cannot be started where that is not allowed: this is another one.
    granted = re.findall(r'setcap (\S+) "\$\(readlink -f (\S+)\)"', text)
    assert [path for _, path in granted] == ["/opt/kdns/bin/python3"]
    assert CONTAINER["command"] == ["/usr/local/bin/python3", "-m", "kdns", "proxy"]
    (path,) = (each["value"] for each in CONTAINER["env"] if each["name"] == "PYTHONPATH")
    version = re.search(r"python:(\d\.\d+)-slim", last)
    assert version
    assert path == f"/opt/kdns/lib/python{version[1]}/site-packages"


@pytest.mark.parametrize(("mode", "mounted"), [("iptables", {ROUTE_LOCALNET}), ("ipvs", IPVS_SYSCTLS)])
def test_another_mode_adds_what_it_takes_and_no_more(mode: str, mounted: set[str]) -> None:
    folder = DEPLOY / f"proxy-{mode}"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert (kustomization["resources"], kustomization["patches"]) == (["../proxy"], [{"path": "daemonset.yaml"}])
    patch = yaml.safe_load((folder / "daemonset.yaml").read_text())
    daemonset = OBJECTS["DaemonSet"]
    assert (patch["kind"], patch["metadata"]["name"]) == (daemonset["kind"], daemonset["metadata"]["name"])
    pod = patch["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["name"] == CONTAINER["name"]
    assert container["securityContext"] == {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}
    places = {volume_mount["name"]: volume_mount["mountPath"] for volume_mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume["hostPath"] for volume in pod["volumes"]}
    assert places.keys() == volumes.keys()
    assert not places.keys() & {volume["name"] for volume in POD["volumes"]}
    assert (places.pop("xtables-lock"), volumes.pop("xtables-lock")["type"]) == ("/run/xtables.lock", "FileOrCreate")
    ((name, place),) = places.items()
    assert place == f"/host{volumes[name]['path']}"
    assert all(str(FOLDERS[0] / each).startswith(f"{place}/") for each in mounted)


def test_cleaning_up_runs_as_the_dataplane_does_and_then_does_nothing() -> None:
    pod = yaml.safe_load((FOLDER / "cleanup.yaml").read_text())["spec"]["template"]["spec"]
    (cleanup,), (done,) = pod["initContainers"], pod["containers"]
    assert cleanup["args"] == ["--cleanup"]
    for name in ("image", "command"):
        assert cleanup[name] == CONTAINER[name]
    legacy = {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]}
    assert cleanup["securityContext"] == CONTAINER["securityContext"] | {"capabilities": legacy}
    ((mount,), (volume,)) = cleanup["volumeMounts"], pod["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], volume["hostPath"]["path"])
    assert volume["hostPath"] == {"path": "/run/xtables.lock", "type": "FileOrCreate"}
    assert cleanup["env"] == [each for each in CONTAINER["env"] if each["name"] == "PYTHONPATH"]
    for name in ("hostNetwork", "tolerations", "nodeSelector", "securityContext"):
        assert pod[name] == POD[name]
    assert (done["image"], done["command"]) == (CONTAINER["image"], ["sleep", "infinity"])
