"""What happens in the repository of a demo; no I/O."""

from __future__ import annotations

__all__ = ["BASE", "BODY", "BRANCH", "CHANGE", "FIX", "TITLE"]

BRANCH = "coupons"
TITLE = "Take coupons at the checkout"
BODY = "A coupon's value is asked for at the coupon service, and taken off the sum."

_CHECKOUT = '''"""What a cart costs."""


def total(prices: list[float]) -> float:
    """Return the sum of a cart."""
    return round(sum(prices), 2)
'''
_COUPONS = '''"""Coupons, as the coupon service knows them."""

import json
import os
from urllib.request import Request, urlopen

SERVICE = "https://coupons.example.com/v1"
API_TOKEN = "{token}"


def value_of(code: str) -> float:
    """Return what a coupon takes off; nothing for one that is not known."""
    request = Request(f"{{SERVICE}}/{{code}}", headers={{"Authorization": API_TOKEN}})
    try:
        return float(json.load(urlopen(request))["value"])
    except:
        print("no such coupon:", code)
        return 0.0
'''
_WITH_COUPON = '''"""What a cart costs."""

from shop.coupons import value_of


def total(prices: list[float], coupon: str | None = None) -> float:
    """Return the sum of a cart."""
    # TODO: a sum below zero
    off = value_of(coupon) if coupon else 0.0
    return round(sum(prices) - off, 2)
'''

BASE = {
    "README.md": "# shop\n\nWhat a cart costs.\n",
    "shop/__init__.py": '"""A shop."""\n',
    "shop/checkout.py": _CHECKOUT,
}
"""The repository as it is."""

CHANGE = {
    "shop/checkout.py": _WITH_COUPON,
    "shop/coupons.py": _COUPONS.format(token="live-4f9c2e7a1b"),
}
"""The pull request: a secret, a bare except, a print and a TODO."""

FIX = {
    "shop/checkout.py": _WITH_COUPON.replace("    # TODO: a sum below zero\n", "").replace(
        "return round(sum(prices) - off, 2)", "return max(0.0, round(sum(prices) - off, 2))"
    ),
    "shop/coupons.py": _COUPONS.format(token="-")
    .replace('API_TOKEN = "-"', 'API_TOKEN = os.environ["COUPONS_TOKEN"]')
    .replace("    except:\n", "    except (OSError, ValueError, KeyError):\n")
    .replace('        print("no such coupon:", code)\n', ""),
}
"""The same without them."""
