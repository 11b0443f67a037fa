# The container image of Weir. make image-root lays dist/image/ARCH: the static program and what it cannot do without; then any
# OCI builder makes the image, for the machines that were laid:
#
#   make image-root && docker build -t weir .
#
# make image builds the released archives from this file (packaging/image).
FROM scratch
ARG TARGETARCH
COPY dist/image/${TARGETARCH}/root/ /
# An empty volume takes owner and mode from here. The user has no name inside, so a number; it is the one that images without a
# distribution have settled on.
COPY --chown=65532:65532 dist/image/${TARGETARCH}/own/ /
USER 65532:65532
WORKDIR /data
VOLUME /data
ENV WEIR_DATA_DIR=/data
# 8883 opens with a certificate; 9090 with WEIR_LISTENERS_METRICS=:9090.
EXPOSE 8080/tcp 8081/tcp 1883/tcp 8883/tcp 9090/tcp
STOPSIGNAL SIGTERM
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="IoT platform in one binary" \
      org.opencontainers.image.licenses="Apache-2.0"
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 CMD ["/weir", "health"]
ENTRYPOINT ["/weir"]
CMD ["run"]
