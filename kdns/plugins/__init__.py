"""The directives of a Corefile and nothing else: one file or folder each, by what they are; `settings` has those
that only say how their block is served.

A directive has its grammar, its frozen configuration and what it does to a query; it knows the engine, and other
directives only where CoreDNS's does.
Begin with `guards/cancel`, a small one, and `directives`, the table in the order of the chain.
"""
