"""An MCP server by hand, with the standard library alone: says what it is told to, good or bad. Runs in a machine."""

import json
import os
import sys
from pathlib import Path
from typing import Any

LEDGER = Path("/workspace/ledger")


def answer(request: dict[str, Any], result: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


def a_tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object", "properties": {}}, **more}


TOOLS = [
    a_tool("tell.me/more"),
    a_tool("tell_me_more"),
    a_tool("die"),
    a_tool("die_reading", annotations={"readOnlyHint": True}),
    a_tool("flood"),
    a_tool("hang"),
    a_tool("refuse"),
    a_tool("huge", inputSchema={"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(5_000)}}),
    *(a_tool(f"zz_{n:03}") for n in range(150)),
]


def call(request: dict[str, Any]) -> None:
    name = request["params"]["name"]
    with LEDGER.open("a") as ledger:
        ledger.write(f"{name}\n")
    if name.startswith("die"):
        print("I am dying.", file=sys.stderr, flush=True)
        os._exit(3)
    while name == "flood":
        print("x" * 65_536, flush=True)
    if name == "hang":
        sys.stdin.read()
    if name == "refuse":
        error = {"code": -32602, "message": "That I will not do."}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
        return
    meta = sorted(key for key in request["params"].get("_meta", {}) if key.startswith("dev.outlive"))
    answer(request, {"content": [{"type": "text", "text": f"{name} {meta}"}]})


print("Welcome to the odd server!", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "initialize":
        info = {"name": "odd", "version": "1"}
        version = request["params"]["protocolVersion"]
        answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        answer(request, {"tools": TOOLS})
    elif method == "tools/call":
        call(request)
    elif "id" in request:
        error = {"code": -32601, "message": "no such method"}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
