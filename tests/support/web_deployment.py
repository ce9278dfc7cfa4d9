"""A Service and a Deployment of three Pods, as a manifest, and the configuration of a cluster for it."""

from kdns.controlplane.cluster_config import ClusterConfig
from kdns.net import parse_network

DEPLOYMENT = """\
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}
"""


def cluster_config() -> ClusterConfig:
    network = parse_network("10.96.0.0/16")
    assert network
    return ClusterConfig((network,))
