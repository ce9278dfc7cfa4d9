"""The official Python client's models read objects of every served kind, as manifests and controllers write them."""

import inspect
from pathlib import Path

from kdns_process import kdns_up
from kubernetes import client, config

TEMPLATE = "template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}"
ONCE = "template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}"
MANIFESTS = [
    (
        "apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {initContainers: [{name: b, image: i}],"
        " containers: [{name: c, image: i, readinessProbe: {httpGet: {port: 80}}, ports: [{containerPort: 80}]}]}"
    ),
    "apiVersion: v1, kind: Node, metadata: {name: a}",
    "apiVersion: v1, kind: Node, metadata: {name: b}, status: {nodeInfo: {kubeletVersion: v1.36.0}}",
    "apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: LoadBalancer, ports: [{port: 80}]}",
    "apiVersion: v1, kind: Service, metadata: {name: b}, spec: {type: ExternalName, externalName: example.com}",
    "apiVersion: v1, kind: Service, metadata: {name: c}, spec: {selector: {app: a}, ports: [{port: 80}]}",
    "apiVersion: v1, kind: Endpoints, metadata: {name: a}, subsets: [{addresses: [{ip: 10.0.0.1}]}]",
    "apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: own}, addressType: IPv4, endpoints: []",
    "apiVersion: v1, kind: ConfigMap, metadata: {name: a}",
    "apiVersion: v1, kind: Secret, metadata: {name: a}",
    (
        "apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a},"
        " spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}"
    ),
    (
        "apiVersion: v1, kind: PersistentVolume, metadata: {name: a},"
        " spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /a}}"
    ),
    f"apiVersion: v1, kind: ReplicationController, metadata: {{name: a}}, spec: {{{TEMPLATE}}}",
    *(
        f"apiVersion: apps/v1, kind: {kind}, metadata: {{name: a}}, spec: {{selector: {{matchLabels: {{app: a}}}},"
        f" {TEMPLATE}}}"
        for kind in ("Deployment", "StatefulSet", "DaemonSet")
    ),
    f"apiVersion: batch/v1, kind: Job, metadata: {{name: a}}, spec: {{{ONCE}}}",
    (
        f'apiVersion: batch/v1, kind: CronJob, metadata: {{name: a}}, spec: {{schedule: "0 0 * * *",'
        f" jobTemplate: {{spec: {{{ONCE}}}}}}}"
    ),
    (
        "apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a},"
        " spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}"
    ),
    "apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: a}, spec: {controller: example.com/a}",
    "apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a}, spec: {minAvailable: 1, selector: {}}",
    "apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a}",
    "apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}, spec: {podSelector: {}}",
    (
        "apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a},"
        " spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}"
    ),
    "apiVersion: v1, kind: ResourceQuota, metadata: {name: a}, spec: {hard: {pods: '4'}}",
    "apiVersion: v1, kind: LimitRange, metadata: {name: a}, spec: {limits: [{type: Pod}]}",
    *(
        f"apiVersion: rbac.authorization.k8s.io/v1, kind: {kind}, metadata: {{name: a}}, rules: []"
        for kind in ("Role", "ClusterRole")
    ),
    *(
        f"apiVersion: rbac.authorization.k8s.io/v1, kind: {kind}, metadata: {{name: a}},"
        " roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: a}"
        for kind in ("RoleBinding", "ClusterRoleBinding")
    ),
    "apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: a}, provisioner: example.com/a",
    "apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: a}, spec: {}",
    "apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: a}, value: 1",
    *(
        f"apiVersion: admissionregistration.k8s.io/v1, kind: {kind}WebhookConfiguration, metadata: {{name: a}}"
        for kind in ("Mutating", "Validating")
    ),
    (
        "apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.a},"
        " spec: {groupPriorityMinimum: 1, versionPriority: 1}"
    ),
]
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
    (tmp_path / "all.yaml").write_text("\n---\n".join(f"{{{manifest}}}" for manifest in MANIFESTS))
    with kdns_up(tmp_path, "all.yaml") as running:
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
