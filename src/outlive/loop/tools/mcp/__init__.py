"""Tools of MCP servers: those that run as a command in the conversation's machine, and those behind HTTP.

What a server is, is in an agent's definition (`server`). What it offers is looked up and kept (`listing`, `listings`),
and each call is a tool step like any other (`tool`). The protocol itself is behind the port in `client`.
"""
