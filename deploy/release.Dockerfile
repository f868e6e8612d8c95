# The image of a release. goreleaser puts the command of each platform beside this file. deploy/Dockerfile builds the same image from source.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
RUN mkdir -p /out/data

FROM scratch
ARG TARGETPLATFORM
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY $TARGETPLATFORM/jetpull /jetpull
# The user owns the folder of the store, so that the user also owns a volume made from it.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
VOLUME /data
EXPOSE 8080
# The broker reads the same variable, $JETPULL_BROKER_ADMIN_TOKEN.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/jetpull", "broker", "health", "--url", "http://127.0.0.1:8080"]
ENTRYPOINT ["/jetpull"]
CMD ["broker", "--listen", "0.0.0.0:8080", "--store-dir", "/data"]
