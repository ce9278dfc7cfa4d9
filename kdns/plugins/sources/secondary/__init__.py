"""secondary: zones that are transferred from a primary, and refreshed."""
