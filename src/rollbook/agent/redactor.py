"""Temporary."""


class Redactor:
    """Temporary."""

    def __init__(self, rules: str, salt: str) -> None:
        self.rules = rules, salt

    def feed(self, data: bytes) -> bytes:
        return data

    def log(self) -> "list[tuple[str, int, int, str]]":
        return []
