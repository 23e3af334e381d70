#!/bin/sh
# Writes envoy.yaml beside this file: deploy/envoy/envoy.yaml, for the addresses of this overlay.
set -eu
cd "$(dirname "$0")"
exec python3 ../../../../envoy/render.py --listen 0.0.0.0:50050 --tls /etc/envoy/tls.yaml --probe 0.0.0.0:9902 \
  --replica daemon-0.daemons:50051 --replica daemon-1.daemons:50051 --replica daemon-2.daemons:50051 > envoy.yaml
