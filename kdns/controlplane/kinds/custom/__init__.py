"""Custom resources: their CustomResourceDefinitions, and the kinds that follow from these."""
