"""Reviews over HTTP: `kubectl auth can-i` and `kubectl auth whoami`."""

from __future__ import annotations

from aiohttp import web

from kdns.aio import bodies, rest_content
from kdns.controlplane import protobuf, render, reviews
from kdns.controlplane.status import StatusError


async def review(request: web.BaseRequest) -> web.Response | None:
    """The answer to a POST of a review; None when the path is for none, 405 for other methods.

    What stands in a protobuf body is not read: the answer is the same for all, and clients look at the status.
    """
    found = reviews.review_at(request.path)
    if found is None:
        return None
    if request.method != "POST":
        message = "the server does not allow this method on the requested resource"
        raise StatusError(405, "MethodNotAllowed", message, {})
    media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    body = await bodies.received(request)
    asked = {} if media_type == protobuf.MEDIA_TYPE else bodies.decode(body, media_type, strictly=False).obj
    return rest_content.answer(request, render.encoded(reviews.reviewed(found, asked)), status=201)
