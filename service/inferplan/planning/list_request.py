"""What every list is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.storage.pages import ListQuery, ListScope, PageTokens


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which page of a list: `page_size` 0 means the default, an empty `page_token` the first page.

    `filter` and `order_by` are as docs/history.md describes them, empty for everything, newest first.
    """

    page_size: int = 0
    page_token: str = ""
    show_deleted: bool = False
    filter: str = ""
    order_by: str = ""

    def scope(self, collection: str, parent: str = "") -> ListScope:
        """The list that a page token of this request belongs to."""
        return ListScope(collection, parent, self.filter, self.order_by, self.show_deleted)

    def query(self, tokens: PageTokens, scope: ListScope) -> ListQuery:
        """The request for a store. Raises InvalidInputError for a token of another list."""
        cursor = tokens.decode(self.page_token, scope)
        return ListQuery(self.page_size, cursor, self.filter, self.order_by, self.show_deleted)
