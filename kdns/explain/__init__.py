"""Why a name has the answer that it has: the answer of the server's own chain, and its causes among the objects.

`explain.py` asks and joins the two; `causes.py` looks at Services, EndpointSlices, Pods and Namespaces; `search.py`
makes the names that a resolver tries; `text.py` has the words. Nothing here decides an answer.
"""
