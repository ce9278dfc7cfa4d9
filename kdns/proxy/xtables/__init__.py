"""What modes iptables, ipvs and userspace share of iptables: names of chains, rules as values, expected rules."""
