"""The task that gathers what the page shows, and the page's handlers."""
