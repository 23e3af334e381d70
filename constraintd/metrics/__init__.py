"""What the daemon measures of itself, for Prometheus. `docs/metrics.md` names every metric.

Nothing is measured before `server.serve_metrics` is called: `recording.active` is then None, and that is all that the
step path looks at. Only `exposition` and `server` import prometheus_client.
"""
