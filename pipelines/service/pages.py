"""The site's pages, and nothing else, from its folder."""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope


class Pages(StaticFiles):
    """Files under a folder that is replaced as a whole now and then, and need not be there yet. No path and no link
    leads out of it, hidden files and folders are not there, and no folder is listed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True, check_dir=False)

    async def check_config(self) -> None:
        """A folder that is not there yet is no fault."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        if any(part.startswith(".") and part != "." for part in Path(path).parts):
            raise HTTPException(404)
        try:
            response = await super().get_response(path, scope)
        except (OSError, HTTPException) as error:
            # What may not be read is not told apart from what is not there.
            raise HTTPException(405 if getattr(error, "status_code", 0) == 405 else 404) from None
        response.headers["cache-control"] = "private, no-cache"
        return response
