"""The schemas of CustomResourceDefinitions: their own rules, and validation, pruning and defaulting by them."""
