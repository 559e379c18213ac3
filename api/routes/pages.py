"""What a person with a browser sees."""

from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.routes.answers import json_response

_DOCS_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data: https://fastapi.tiangolo.com; "
    "style-src 'unsafe-inline' https://cdn.jsdelivr.net; script-src 'unsafe-inline' https://cdn.jsdelivr.net; "
    "frame-ancestors 'none'"
)


async def root(request: Request) -> Response:
    """The way in."""
    if request.app.openapi_url:
        return RedirectResponse("/docs", 307)
    return json_response({"name": "inferq", "version": request.app.version})


async def docs(request: Request) -> Response:
    """The interactive documentation; its scripts come from a public network of mirrors."""
    page = get_swagger_ui_html(openapi_url=request.app.openapi_url, title="inferq")
    page.headers["Content-Security-Policy"] = _DOCS_POLICY
    return page
