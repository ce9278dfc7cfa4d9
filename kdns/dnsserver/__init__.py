"""The engine of the DNS server: it passes a query through the chain of its server block and keeps the answer.

It knows the protocol and the interface of directives, but no directive by name: the table of directives is an argument.
Begin with `blocks` and `chain`; `answers/` has responses and the answer table, `io/` the sockets.
"""
