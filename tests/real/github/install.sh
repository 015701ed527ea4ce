#!/usr/bin/env bash
# Installs the local GitHub server, and GitHub's example payloads, into a folder that survives
# between runs. Prints its node_modules.
set -euo pipefail
# The last version that runs on Node 20.
packages="emulate@0.11.2 @octokit/webhooks-examples@7.6.1"
cache=${THREADLINE_REAL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/threadline-real}/github
for program in node npm; do
  if ! command -v $program >/dev/null; then
    echo "$program is missing: install Node.js 20 or newer and run this again." >&2
    exit 1
  fi
done
if [ "$(node -p 'process.versions.node.split(".")[0] >= 20')" != true ]; then
  echo "The local GitHub server needs Node.js 20 or newer, not $(node --version)." >&2
  exit 1
fi
if [ ! -f "$cache/node_modules/emulate/dist/index.js" ] ||
  [ "$(cat "$cache/installed" 2>/dev/null)" != "$packages" ]; then
  mkdir -p "$cache"
  # shellcheck disable=SC2086
  (cd "$cache" && npm install --prefix . --ignore-scripts --no-audit --no-fund --silent $packages >&2)
  echo "$packages" >"$cache/installed"
fi
echo "$cache/node_modules"
