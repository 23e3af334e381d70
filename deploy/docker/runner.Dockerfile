# syntax=docker/dockerfile:1
# The runner, on CPUs. From the repository's root:
#
#   docker build --file deploy/docker/runner.Dockerfile --tag constraintd/runner:0.1.0 .
#
# It runs as user 65532 on a read-only root, and writes to /run/constraintd alone. The model is not in it: it is a
# folder in the volume /models. `model fetch` puts one there, and wants /tmp meanwhile:
#
#   docker run --volume models:/models --tmpfs /tmp constraintd/runner:0.1.0 model fetch smollm2 --to /models/smollm2
#   docker run --read-only --volume models:/models:ro --volume sockets:/run/constraintd constraintd/runner:0.1.0
#
# No HEALTHCHECK: Kubernetes ignores it, and asks grpc.health.v1 itself (deploy/kustomize).

# The version that the tests run on. For a build that can be repeated give a digest as well:
# --build-arg PYTHON=3.11.13-slim-bookworm@sha256:...
ARG PYTHON=3.11.13-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE deploy/docker/constraints.txt ./
COPY constraintd constraintd
COPY runner runner
COPY clients/python clients/python
RUN python -m venv --without-pip /opt/constraintd
# pip is there for `model fetch`, which gets its model from a package index.
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/constraintd/bin/python install --constraint constraints.txt ".[runner]" pip
# Empty folders that the image's user owns: what volumes are mounted over, and begin as.
RUN mkdir -p /volumes/models /volumes/sockets

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="constraintd-runner" \
      org.opencontainers.image.description="Runs a language model in ONNX Runtime, under masks from a constraintd daemon" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
# 286 MB over the base image: ONNX Runtime, onnx (for converting), NumPy, gRPC and the tokenizers.
COPY --from=build /opt/constraintd /opt/constraintd
COPY --from=build --chown=65532:65532 /volumes/models /models
COPY --from=build --chown=65532:65532 /volumes/sockets /run/constraintd
ENV PATH=/opt/constraintd/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can see that it isn't root.
USER 65532:65532
WORKDIR /models
VOLUME ["/models", "/run/constraintd"]
EXPOSE 50052
ENTRYPOINT ["constraintd-runner"]
# Sockets that only who shares the volume can reach; a port of a network needs TLS or tokens (docs/operations.md).
CMD ["serve", "--model", "/models/smollm2", "--daemon", "unix:/run/constraintd/daemon.sock", "--listen", "unix:/run/constraintd/runner.sock"]
