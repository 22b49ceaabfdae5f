"""Refusal: an answer other than 200."""

from collections.abc import Mapping


class Refusal(Exception):  # noqa: N818  it is an answer
    """The request is refused with this status; the detail is shown to the client.

    Example:
        >>> Refusal(413, "too long").status
        413
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})
