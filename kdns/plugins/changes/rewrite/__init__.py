"""rewrite [continue | stop] FIELD …: changes questions and answers."""
