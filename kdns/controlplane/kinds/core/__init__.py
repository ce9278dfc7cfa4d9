"""Namespaces, ConfigMaps, Secrets, ServiceAccounts and Events."""
