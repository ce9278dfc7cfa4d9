"""The schema's data, made from the OpenAPI of one Kubernetes release: `python -m tools.schema.generate`."""
