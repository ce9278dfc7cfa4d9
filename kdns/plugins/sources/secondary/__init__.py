"""secondary: zones that are transferred from a primary, and kept up to date."""
