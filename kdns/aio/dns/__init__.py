"""DNS listeners, followed clusters, logs and metrics of queries."""
