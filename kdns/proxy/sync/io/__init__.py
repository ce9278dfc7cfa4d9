"""Syncs: changes are gathered, planned and handed to the mode's proxier; stale flows are deleted."""
