"""The Python client's adapter; see clients/conformance/ADAPTER.md."""
