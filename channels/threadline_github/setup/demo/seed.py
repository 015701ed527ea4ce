"""Who and what there is in the GitHub of a demo; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "APP",
    "INSTALLATION",
    "MEMBER",
    "OUTSIDER",
    "PERMISSIONS",
    "REPOSITORY",
    "SECRET",
    "new_key",
    "seed",
    "token_of",
]

APP, INSTALLATION = 4100, 4200
MEMBER, OTHER, OUTSIDER = "ada", "grace", "mallory"
_NOBODY = "nobody"
_ORGANISATION, _NAME = "acme", "shop"
REPOSITORY = f"{_ORGANISATION}/{_NAME}"
SECRET = "the demo's webhook secret"
PERMISSIONS = {
    "checks": "write",
    "contents": "read",
    "issues": "write",
    "metadata": "read",
    "pull_requests": "write",
}
_EVENTS = (
    "check_run",
    "check_suite",
    "issue_comment",
    "issues",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "push",
    "repository",
)
_SCOPES = ["repo", "user", "admin:org", "admin:repo_hook"]


def token_of(login: str) -> str:
    """Return the token with which a person calls the API."""
    return f"demo-token-of-{login}"


def new_key() -> str:
    """Return a new private key of an App, in PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


def seed(
    slug: str, name: str, key: str, hook: str, *, permissions: Mapping[str, str] = PERMISSIONS
) -> dict[str, Any]:
    """Return the local server's seed: people, a repository, and the App that is installed in it.

    The server takes whoever comes with a token that it does not know for the first user, so that
    one is nobody.
    """
    people = [MEMBER, OTHER, OUTSIDER]
    granted = dict(permissions)
    return {
        "tokens": {token_of(login): {"login": login, "scopes": _SCOPES} for login in people},
        "github": {
            "users": [
                {"login": login, "name": login.capitalize(), "email": f"{login}@example.com"}
                for login in (_NOBODY, *people)
            ],
            "orgs": [
                {
                    "login": _ORGANISATION,
                    "members": [
                        {"login": MEMBER, "role": "admin"},
                        {"login": OTHER, "role": "member"},
                    ],
                }
            ],
            "repos": [{"owner": _ORGANISATION, "name": _NAME, "auto_init": False}],
            "apps": [
                {
                    "app_id": APP,
                    "slug": slug,
                    "name": name,
                    "private_key": key,
                    "permissions": granted,
                    "events": list(_EVENTS),
                    "webhook_url": hook,
                    "webhook_secret": SECRET,
                    "installations": [
                        {
                            "installation_id": INSTALLATION,
                            "account": _ORGANISATION,
                            "repository_selection": "selected",
                            "repositories": [_NAME],
                            "permissions": granted,
                            "events": list(_EVENTS),
                        }
                    ],
                }
            ],
        },
    }
