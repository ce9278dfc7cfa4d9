"""What records are in bytes, and the table that turns a packet into its answer."""
