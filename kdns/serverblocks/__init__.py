"""What a Corefile says: directives, their stanzas and options, and the settings of server blocks."""
