"""The controllers of workloads: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, and PodDisruptionBudget."""
