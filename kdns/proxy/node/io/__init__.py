"""Health, metrics, Events and host settings of a node's dataplane."""
