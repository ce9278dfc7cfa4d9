"""Answers: what a response says, its bytes, how long they hold, and the table that keeps them for the next query.

It knows the protocol (`kdns.dns`), and neither directives nor clusters: what an answer depends on is an opaque subject.
Begin with `response`; `answer` compiles one to bytes, `table` keeps it.
"""
