"""One module per family of paths: each checks what was asked, calls the conversation layer, and writes the answer."""
