"""What kind of thing a file is, by its name and what is in it. Pure: no table of the host's."""

_BY_ENDING = {
    "avif": "image/avif",
    "css": "text/css",
    "csv": "text/csv",
    "diff": "text/x-diff",
    "gif": "image/gif",
    "gz": "application/gzip",
    "htm": "text/html",
    "html": "text/html",
    "ipynb": "application/x-ipynb+json",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript",
    "json": "application/json",
    "log": "text/plain",
    "md": "text/markdown",
    "mp4": "video/mp4",
    "patch": "text/x-diff",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "tar": "application/x-tar",
    "txt": "text/plain",
    "webm": "video/webm",
    "webp": "image/webp",
    "xml": "application/xml",
    "zip": "application/zip",
}
_LOOKED_AT = 8_192


def media_type_of(name: str, content: bytes) -> str:
    """By its ending where that is known; else text, or just bytes."""
    _, dot, ending = name.rpartition(".")
    if dot and (known := _BY_ENDING.get(ending.lower())) is not None:
        return known
    head = content[:_LOOKED_AT]
    if b"\0" in head:
        return "application/octet-stream"
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The cut may have left half a character at the end.
        if error.start < len(head) - 3 or len(content) <= _LOOKED_AT:
            return "application/octet-stream"
    return "text/plain"
