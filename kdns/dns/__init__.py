"""DNS without Kubernetes: names, records, queries, responses, and the answer table."""
