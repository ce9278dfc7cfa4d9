"""Users, and the answers of reviews about users and tokens. Every authenticated user may do everything."""
