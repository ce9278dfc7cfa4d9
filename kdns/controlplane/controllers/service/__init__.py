"""The controllers of Services but for endpoints: load balancers, ServiceCIDRs, and the repair of allocations."""
