"""What happens to a query before any socket: requests, the plugin chain, responses, their bytes, and the answer table.

It knows the protocol (`kdns.dns`), and neither directives nor clusters: what an answer depends on is an opaque subject.
Begin with `chain` and `response`; `answer` compiles a response to bytes, `table` keeps it.
"""
