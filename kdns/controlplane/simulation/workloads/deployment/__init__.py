"""The Deployment controller (kube-controller-manager: pkg/controller/deployment)."""
