"""Mode nftables: transactions, reading back, and notice of changes by others."""
