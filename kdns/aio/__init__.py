"""All input and output: sockets, the API watch, the REST server, files and the clock."""
