"""Nodes and the Pods on them: scheduler, simulated kubelets, node lifecycle and Pod garbage collection."""
