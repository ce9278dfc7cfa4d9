"""The stored objects and what follows from their commits: owners, dependents, allocations, termination of
namespaces.
"""
