"""Workloads of apps/v1, and ReplicationControllers."""
