"""Who sends a request, and what reviews answer of users and tokens. Everybody who is let in may do everything."""
