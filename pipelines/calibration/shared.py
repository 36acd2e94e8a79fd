"""What the readers of all tools share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Lenient(BaseModel):
    """Part of a tool's document: keys that are not read may be there or not."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class UnusableError(Exception):
    """Why a document that was recognised cannot be used, and what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what, self.remedy = what, remedy
        super().__init__(what, remedy)
