"""The `cache` directive: replies of later directives, reused until their TTL expires."""
