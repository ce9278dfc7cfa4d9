"""The status pages: what a server serves and how stale that is, who asks for what, and what its Services have.

`toplist.py` counts frequent values in bounded memory, `samples.py` the names and clients of sampled queries,
`history.py` keeps rates of metrics, `plot.py` draws them, `services.py` has the table of Services, `names.py` the names
of one, `page.py` is a page as values. `io/` gathers and serves it.
"""
