"""The schemas of CustomResourceDefinitions: their rules, and what they make of an object."""
