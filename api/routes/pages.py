"""What a person with a browser sees."""

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.problems import Problem, ProblemCode
from api.routes.answers import json_response

_ASSETS: Final = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
"""The files of Swagger UI that the page needs; nothing comes from anywhere else."""

_START: Final = "start.js"
_START_SCRIPT: Final = b"""SwaggerUIBundle({
  url: "/openapi.json", dom_id: "#docs", deepLinking: true, tryItOutEnabled: true,
  presets: [SwaggerUIBundle.presets.apis], layout: "BaseLayout"
});
"""
_PAGE: Final = b"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>inferq</title>
<link rel="icon" href="/docs/favicon.png">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="docs"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
_POLICY: Final = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self'; frame-ancestors 'none'"
)
_CACHE: Final = {"Cache-Control": "public, max-age=86400"}


async def root(request: Request) -> Response:
    """The way in."""
    if request.app.openapi_url:
        return RedirectResponse("/docs", 307)
    return json_response({"name": "inferq", "version": request.app.version})


async def docs(request: Request) -> Response:
    """The interactive documentation."""
    return Response(_PAGE, 200, {"Content-Security-Policy": _POLICY}, "text/html")


async def asset(request: Request) -> Response:
    """A file of the interactive documentation, from this machine."""
    name = request.path_params["asset"]
    if name == _START:
        return Response(_START_SCRIPT, 200, _CACHE, "text/javascript")
    if name not in _ASSETS:
        raise Problem(ProblemCode.NOT_FOUND, "This path leads nowhere.")
    return Response((files("fastapi_offline") / "static" / name).read_bytes(), 200, _CACHE, _ASSETS[name])
