"""What happens to a packet for a virtual IP: Services, endpoints and a node become one plan, which each mode applies.

It knows the cluster's state, and no DNS.
Begin with `plan/`, which decides everything once; a mode's folder renders the plan and its `io/` applies it.
"""
