"""Processes that answer DNS over UDP beside the server, each on sockets of its own with the same addresses.

A worker has copies of answers and sockets, nothing else. Packets without an answer go to the server's process over a
pair of sockets; copies of answers, and the subjects to forget, come back in order. Begin at pool.py.
"""
