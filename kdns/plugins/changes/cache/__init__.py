"""The `cache` directive: replies of later directives, used again until their TTL has passed."""
