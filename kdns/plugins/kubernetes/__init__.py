"""The `kubernetes` directive: its stanza, and the records of Services, endpoints and Pods."""
