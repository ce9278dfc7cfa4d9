"""A node's dataplane: the plan carried into the kernel, and what is served about it."""
