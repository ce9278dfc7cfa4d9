"""The status page: what a DNS server serves and how stale that is, who asks for what, and why a name has its answer.

`toplist.py` counts frequent values in bounded memory, `samples.py` the names and clients of sampled queries,
`history.py` keeps rates of metrics, `plot.py` draws them, `page.py` makes HTML. `io/` gathers and serves it.
"""
