"""SubjectAccessReviews and SelfSubjectReviews over HTTP, for `kubectl auth can-i` and `kubectl auth whoami`."""

from __future__ import annotations

from aiohttp import web

from kdns.aio.apiserver.body import decoded_body, read_body
from kdns.aio.apiserver.response import object_response
from kdns.controlplane.meta.errors import StatusError
from kdns.controlplane.server import access_reviews
from kdns.controlplane.server.protobuf import messages


async def review(request: web.BaseRequest) -> web.Response | None:
    """The response to a POST of a review; None for a path that is no review's, 405 for other methods.

    A protobuf body is not decoded: the answer is the same for every subject, and clients read the status only.
    """
    kind = access_reviews.review_at(request.path)
    if kind is None:
        return None
    if request.method != "POST":
        message = "the server does not allow this method on the requested resource"
        raise StatusError(405, "MethodNotAllowed", message, {})
    media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    body = await read_body(request)
    is_decoded = media_type != messages.MEDIA_TYPE
    obj = (await decoded_body(body, media_type, strictly=False)).obj if is_decoded else {}
    return object_response(request, access_reviews.reviewed(kind, obj), status=201)
