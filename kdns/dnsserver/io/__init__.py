"""The DNS server at work: listeners, transports, setup of directives, reload and metrics."""
