"""Nodes and the Pods on them: a scheduler and simulated kubelets."""
