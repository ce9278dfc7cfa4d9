"""The controllers of Services except endpoints: load balancers and ServiceCIDRs."""
