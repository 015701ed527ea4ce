#!/usr/bin/env bash
# Installs what pip cannot: Chromium, for the tests of the pages.
set -euo pipefail
if command -v chromium >/dev/null || [ -x /usr/bin/chromium ]; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "Chromium is missing and there is no apt-get here: install it by hand." >&2
  exit 1
fi
sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq chromium >/dev/null
