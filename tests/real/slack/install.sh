#!/usr/bin/env bash
# Installs the local Slack server into a folder that survives between runs. Prints its program.
set -euo pipefail
package=local-slack-linux-x64@0.1.8
cache=${THREADLINE_REAL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/threadline-real}/slack
if [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "The local Slack server is published for Linux x86_64 only." >&2
  exit 1
fi
if ! command -v npm >/dev/null; then
  echo "npm is missing: install Node.js and run this again." >&2
  exit 1
fi
program=$cache/node_modules/local-slack-linux-x64/bin/local-slack
if [ ! -x "$program" ] || [ "$(cat "$cache/installed" 2>/dev/null)" != "$package" ]; then
  mkdir -p "$cache"
  (cd "$cache" && npm install --prefix . --ignore-scripts --no-audit --no-fund --silent "$package" >&2)
  echo "$package" >"$cache/installed"
fi
echo "$program"
