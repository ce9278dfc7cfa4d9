"""The decisions: which endpoints serve a front, for whom, and what is refused.

It reads modes' semantics from `modes` and knows no mode's rules.
Begin with `branches`; `planner` keeps the plan of a changing cluster.
"""
