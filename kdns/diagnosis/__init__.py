"""What is wrong or surprising with the names, Services, endpoints and virtual IPs of a cluster: `problems(view)`.

`problem.py` has the causes and what is said of one, `view.py` the objects that are looked at. The rules are in files by
idea; `rules.py` lists them. Nothing here decides what a packet or a query gets: rules read the plan's own refusals, the
causes that `kdns explain` has, and the variables of `kdns env`.
"""

from kdns.diagnosis.problem import CAUSES, Problem, Severity
from kdns.diagnosis.rules import problems
from kdns.diagnosis.view import ClusterView

__all__ = ["CAUSES", "ClusterView", "Problem", "Severity", "problems"]
