"""The DNS server: passes a query through the chain of its server block, and caches the answer in the table.

It knows the protocol and the interface of directives, but no directive by name: the table of directives is an argument.
Begin with `blocks`, which chooses block and chain of a query; `kdns.answers` has chain and table, `io/` the sockets.
"""
