# syntax=docker/dockerfile:1
# The daemon. From the repository's root:
#
#   docker build --file deploy/docker/daemon.Dockerfile --tag constraintd/daemon:0.1.0 .
#
# It runs as user 65532 on a read-only root, and writes to its volumes alone:
#
#   docker run --read-only --volume sessions:/var/lib/constraintd --volume sockets:/run/constraintd constraintd/daemon:0.1.0
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
# Without pip: nothing is ever installed in the running image.
RUN python -m venv --without-pip /opt/constraintd
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/constraintd/bin/python install --constraint constraints.txt ".[daemon,redis]"
# Empty folders that the image's user owns: what volumes are mounted over, and begin as.
RUN mkdir -p /volumes/state /volumes/sockets

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="constraintd" \
      org.opencontainers.image.description="Holds grammars and sampler state for model runners" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
# 183 MB over the base image: llguidance, NumPy, gRPC and the tokenizers.
COPY --from=build /opt/constraintd /opt/constraintd
COPY --from=build --chown=65532:65532 /volumes/state /var/lib/constraintd
COPY --from=build --chown=65532:65532 /volumes/sockets /run/constraintd
ENV PATH=/opt/constraintd/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can see that it isn't root.
USER 65532:65532
WORKDIR /var/lib/constraintd
VOLUME ["/var/lib/constraintd", "/run/constraintd"]
EXPOSE 50051
ENTRYPOINT ["constraintd"]
# A socket that only who shares the volume can reach; a port of a network needs TLS or tokens (docs/operations.md).
CMD ["serve", "--listen", "unix:/run/constraintd/daemon.sock", "--store", "sqlite:/var/lib/constraintd/sessions.db"]
