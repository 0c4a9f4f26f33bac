# Two images. `light`, the last and so the default, has no PyTorch: for models behind an API, and for checks. `full` has all.
#
#     docker build --tag lead-migrate .
#     docker build --tag lead-migrate:full --target full .
#     docker run --rm --user "$(id -u)" --volume "$PWD:/stores" --volume lead-migrate-data:/var/lib/lead-migrate --env OPENAI_API_KEY \
#         lead-migrate run my-store --target openai:text-embedding-3-small --queries queries.txt -o moved
FROM python:3.13-slim AS light-installation
WORKDIR /source
RUN python -m venv --without-pip /opt/lead-migrate
# Before the package, so that a change of the package does not install them again
COPY light.txt ./
RUN pip --python /opt/lead-migrate/bin/python install --no-cache-dir --requirement light.txt
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY migrate migrate
RUN pip --python /opt/lead-migrate/bin/python install --no-cache-dir --no-deps .

FROM light-installation AS full-installation
# The build of PyTorch for processors: that for NVIDIA cards is some gigabytes more, and wants a base image of its own
RUN pip --python /opt/lead-migrate/bin/python install --no-cache-dir \
        --extra-index-url https://download.pytorch.org/whl/cpu .

FROM python:3.13-slim AS base
LABEL org.opencontainers.image.title="lead-migrate" \
      org.opencontainers.image.description="Move a vector store to another embedding model without re-embedding it all" \
      org.opencontainers.image.licenses="MIT"
# Embeddings that were paid for, and copies of databases, outlive the container in a volume
ENV PATH=/opt/lead-migrate/bin:$PATH XDG_CACHE_HOME=/var/lib/lead-migrate/cache XDG_STATE_HOME=/var/lib/lead-migrate/state
# Writable for everybody, as the user of mounted stores may be another: --user "$(id -u)"
RUN useradd --create-home --uid 1000 migrate && install --directory --owner migrate --mode 1777 /stores /var/lib/lead-migrate
USER migrate
WORKDIR /stores
VOLUME /stores /var/lib/lead-migrate
ENTRYPOINT ["lead-migrate"]
CMD ["--help"]

FROM base AS full
COPY --from=full-installation /opt/lead-migrate /opt/lead-migrate

FROM base AS light
COPY --from=light-installation /opt/lead-migrate /opt/lead-migrate
