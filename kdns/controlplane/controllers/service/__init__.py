"""The controllers of Services except endpoints: load balancers, ServiceCIDRs, and the repair of allocations."""
