# SPDX-License-Identifier: Apache-2.0
# The image that "make image" packs, for machines with a container engine: docker build -t tandem . (or podman, or buildah).
# Its files and settings are listed in deployments/release/image. TestDockerfile there compares this file with that image.

FROM docker.io/library/golang:1.26-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends busybox-static
WORKDIR /tandem
COPY . .
RUN make image-root

FROM scratch
COPY --from=build /tandem/bin/root/ /
ENV PATH=/usr/bin:/bin \
    GOMAXPROCS=2 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /root
ENTRYPOINT ["/entrypoint.sh"]
# To record the commit, build with --label org.opencontainers.image.revision=$(git rev-parse HEAD)
LABEL org.opencontainers.image.title="tandem" \
      org.opencontainers.image.description="A container's GPUs and RDMA VFs on the same PCIe switch" \
      org.opencontainers.image.source="https://github.com/tandem-k8s/tandem" \
      org.opencontainers.image.documentation="https://github.com/tandem-k8s/tandem/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-only AND LGPL-2.1-or-later" \
      org.opencontainers.image.version="0.1.0-dev"
