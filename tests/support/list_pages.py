"""A list of the API that has arrived whole, as a page."""

from dataclasses import replace

from kdns.cluster.watch import ListDecoder, ListPage, Resource


def decode_list(resource: Resource, body: bytes) -> ListPage:
    decoder = ListDecoder(resource)
    first, last = decoder.feed(body), decoder.end()
    return replace(last, objects=(*first.objects, *last.objects), failures=first.failures + last.failures)
