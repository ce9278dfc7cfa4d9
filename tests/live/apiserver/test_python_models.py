"""The official Python client's models read objects of every served kind, as manifests and controllers write them."""

import inspect
from pathlib import Path

from kdns_process import kdns_up
from kubernetes import client, config

NOT_SERVED = {
    "component_status",
    "csi_node",
    "csi_storage_capacity",
    "device_class",
    "mutating_admission_policy",
    "mutating_admission_policy_binding",
    "pod_template",
    "validating_admission_policy",
    "validating_admission_policy_binding",
    "volume_attachment",
    "volume_attributes_class",
}


def test_every_kind_is_read(tmp_path: Path) -> None:
    with kdns_up(tmp_path, str(Path(__file__).with_name("every_kind.yaml"))) as running:
        running.kubectl("rollout", "status", "deployment/a", "--timeout=60s")
        running.kubectl("wait", "job/a", "--for=condition=complete", "--timeout=60s")
        config.load_kube_config(str(tmp_path / "kdns.kubeconfig"))
        apis = [client.CoreV1Api, client.AppsV1Api, client.BatchV1Api, client.CoordinationV1Api]
        apis += [client.DiscoveryV1Api, client.NetworkingV1Api, client.PolicyV1Api]
        apis += [client.AutoscalingV2Api, client.RbacAuthorizationV1Api, client.StorageV1Api, client.SchedulingV1Api]
        apis += [client.AdmissionregistrationV1Api, client.ApiregistrationV1Api]
        empty = []
        for api in (each() for each in apis):
            for name, method in inspect.getmembers(api, inspect.ismethod):
                kind = name.removeprefix("list_").removesuffix("_for_all_namespaces")
                if kind == name or "_namespaced" in name or name.endswith("_info") or kind in NOT_SERVED:
                    continue
                empty += [] if method().items else [kind]
    assert empty == []
