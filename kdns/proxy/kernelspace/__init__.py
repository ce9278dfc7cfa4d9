"""Mode kernelspace of Windows: a load balancer of the host compute network service (HCN) for each front."""
