"""The plan as nftables: sets, chains, transactions and counters as values."""
