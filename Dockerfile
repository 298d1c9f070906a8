# One image with tandem-gpu, tandem-rdma and tandem; the manifests say which one a container runs.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN make build

# debian:12-slim is there for tandem-gpu, which loads the vendors' libraries by glibc's dlopen, for people, and for what wraps
# the plugins: a shell, cat and grep for "kubectl exec" and for entry points that are scripts.
FROM debian:12-slim
COPY --from=build /src/bin/tandem /src/bin/tandem-gpu /src/bin/tandem-rdma /usr/bin/
# The name and the folder by which AMD's manifests and GPU operator start their plugin.
RUN ln -s ../usr/bin/tandem-gpu /root/k8s-device-plugin
WORKDIR /root
# No ENTRYPOINT: which of the two plugins runs is the manifest's choice. AMD's manifests leave it to the image.
CMD ["tandem-gpu"]
