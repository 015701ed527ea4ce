#!/usr/bin/env bash
# Installs what pip cannot: Chromium for the pages, nginx for streams behind a proxy, MCP clients, Slack, GitHub.
set -euo pipefail
missing=()
[ -x /usr/bin/chromium ] || missing+=(chromium)
command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing+=(nginx-light)
if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "Missing, and there is no apt-get here; install by hand: ${missing[*]}" >&2
    exit 1
  fi
  sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo"
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "${missing[@]}" >/dev/null
fi
"$(dirname "$0")/mcp/install.sh" >/dev/null
"$(dirname "$0")/slack/install.sh" >/dev/null
"$(dirname "$0")/github/install.sh" >/dev/null
