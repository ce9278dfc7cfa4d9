"""The page's handlers."""
