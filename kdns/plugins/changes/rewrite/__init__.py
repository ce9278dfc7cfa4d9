"""rewrite [continue | stop] FIELD …: questions and answers made into others."""
