"""The plan as iptables: chains, rules, and the texts of restores as values."""
