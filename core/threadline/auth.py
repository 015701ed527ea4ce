"""Auth policies, for channels' and agents' chains."""

from threadline.channel.auth import (
    AuthRequest,
    Policy,
    anonymous,
    bearer,
    documented,
    local_dev_strict,
)

__all__ = ["AuthRequest", "Policy", "anonymous", "bearer", "documented", "local_dev_strict"]
