"""Where packets to virtual IPs go: Services, endpoints and a node, as one immutable plan that all modes carry out."""
