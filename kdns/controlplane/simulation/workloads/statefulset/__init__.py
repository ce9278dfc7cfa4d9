"""The StatefulSet controller (kube-controller-manager: pkg/controller/statefulset)."""
