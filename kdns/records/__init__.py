"""What the cluster state means in DNS: records, by topic."""
