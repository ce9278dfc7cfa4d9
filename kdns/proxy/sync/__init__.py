"""When the plan is applied to the node, and which Services a kernel rejects it for."""
