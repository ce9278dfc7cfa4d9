"""The schema of the API: types and fields of a Kubernetes release, and validation of objects against them."""
