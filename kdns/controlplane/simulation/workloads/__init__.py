"""The controllers of workloads: Deployment, ReplicaSet, StatefulSet, DaemonSet and Job."""
