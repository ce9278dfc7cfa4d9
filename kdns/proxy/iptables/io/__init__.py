"""Mode iptables in the kernel, by the programs of iptables."""
