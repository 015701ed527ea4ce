"""``python -m threadline`` is the ``threadline`` command."""

from __future__ import annotations

from threadline.cli.main import main

if __name__ == "__main__":
    main()
