"""An MCP server with the official package: `python catalog.py` serves it at http://127.0.0.1:8765/mcp."""

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

BOOKS = {"A Wizard of Earthsea": "ada", "The Dispossessed": None, "The Left Hand of Darkness": None}

server = MCPServer("catalog", log_level="WARNING")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find(words: str) -> str:
    """Books whose title has these words, and who has borrowed them."""
    found = [title for title in BOOKS if words.lower() in title.lower()]
    return "\n".join(f"{title}: {BOOKS[title] or 'on the shelf'}" for title in found) or "no such book"


@server.tool()
def lend(title: str, reader: str) -> str:
    """Lend a book to a reader."""
    if BOOKS.get(title, "nobody") is not None:
        raise ValueError(f"{title} cannot be lent")
    BOOKS[title] = reader
    return f"{title} is lent to {reader}."


if __name__ == "__main__":
    server.run("streamable-http", port=8765)
