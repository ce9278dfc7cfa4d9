"""kdns: cluster DNS, Service dataplane and service variables for Kubernetes."""

__version__ = "0.9.0"
