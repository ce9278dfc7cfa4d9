"""The decisions: endpoints, service ports, and the plan of a node."""
