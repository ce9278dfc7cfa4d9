"""What is wrong or surprising with the names, Services, endpoints and virtual IPs of a cluster: `rules.problems(view)`.

`problem.py` has the causes and what is said of one, `view.py` the objects that are looked at. The rules are in files by
idea; `rules.py` lists them. Nothing here decides what a packet or a query gets: rules read the plan's own refusals, the
causes that `kdns explain` has, and the variables of `kdns env`.
"""
