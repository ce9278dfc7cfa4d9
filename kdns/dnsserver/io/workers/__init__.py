"""Several whole servers at the same addresses, and the process that supervises them. Begin at supervisor.py."""
