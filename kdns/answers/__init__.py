"""The engine without sockets: requests, the plugin chain, responses and their bytes, and the answer table.

It knows the protocol (`kdns.dns`), but neither directives nor clusters: answers depend on opaque subjects.
Begin with `chain` and `response`; `answer` compiles a response to bytes, `table` caches it.
"""
