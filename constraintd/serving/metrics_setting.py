"""The setting `metrics_listen`: without it nothing that measures or serves is imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from constraintd.serving.settings import BadConfig


@contextmanager
def metrics_served(address: str | None, module: str, extra: str) -> Iterator[None]:
    """Serves metrics there meanwhile, by the module's `serve_metrics`; None: nowhere. `extra` installs what it needs.

    Raises BadConfig.
    """
    if address is None:
        yield
        return
    try:
        serve_metrics = import_module(module).serve_metrics
    except ImportError as error:
        raise BadConfig(
            f"metrics_listen: the package {error.name} is missing: pip install 'constraintd[{extra}]'"
        ) from None
    try:
        server = serve_metrics(address)
    except (OSError, ValueError) as error:
        raise BadConfig(f"metrics_listen: can't listen on {address}: {error}") from None
    try:
        yield
    finally:
        server.close()
