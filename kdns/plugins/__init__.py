"""The directives of a Corefile: a file or folder each; `settings` has those that only set up their block.

A directive is its grammar, its frozen configuration and its plugin. It knows the engine, and other directives only
where CoreDNS's does. Begin with `guards/cancel`, a small one, and `directives`, the table in the order of the chain.
"""
