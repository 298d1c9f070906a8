# One image with tandem-gpu, tandem-rdma and tandem, under their own names and those by which the operators of the stock plugins
# call theirs. "make image" makes the same image without Docker; deployments/image/files.go lists what is in it and why.
FROM golang:1.26-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends busybox-static
WORKDIR /src
COPY . .
RUN make rootfs

FROM scratch
COPY --from=build /src/bin/rootfs/ /
ENV PATH=/usr/bin:/bin GOMAXPROCS=2
WORKDIR /root
# For manifests of the stock plugins that name no command: those of AMD and NVIDIA give nothing, those of the SR-IOV network device
# plugin arguments. Ours name the command.
ENTRYPOINT ["/entrypoint.sh"]
CMD ["tandem-gpu"]
