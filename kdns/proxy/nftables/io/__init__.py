"""Mode nftables in the kernel: transactions, reading back, and notice of changes by others."""
