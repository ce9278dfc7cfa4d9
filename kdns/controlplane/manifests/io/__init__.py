"""Manifest files: found below paths, read, and scanned for changes."""
