"""What a cluster without machines would do: nodes that are ready, Pods that run, and workloads that make Pods."""
