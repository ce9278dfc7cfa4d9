"""The DNS protocol: names, types, queries, records, messages and zones as values (RFC 1034, RFC 1035).

It knows no server, no directive and no cluster, and could be published by itself.
Begin with `query` and `rrset`; `zone/` answers from the records of a zone.
"""
