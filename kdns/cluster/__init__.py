"""What the cluster says: slim objects, and the indexed state they make."""
