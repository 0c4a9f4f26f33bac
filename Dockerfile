# A light installation, without PyTorch and FAISS: `lead-migrate check` of stores whose manifest answers.
#
#     docker build --tag lead-migrate .
#     docker run --rm --volume "$PWD:/stores:ro" lead-migrate check my-store --model openai:text-embedding-3-small
FROM python:3.13-slim AS build
WORKDIR /source
COPY light.txt setup.cfg pyproject.toml README.md LICENSE ./
COPY migrate migrate
RUN python -m venv --without-pip /opt/lead-migrate \
    && pip --python /opt/lead-migrate/bin/python install --no-cache-dir --requirement light.txt \
    && pip --python /opt/lead-migrate/bin/python install --no-cache-dir --no-deps .

FROM python:3.13-slim
COPY --from=build /opt/lead-migrate /opt/lead-migrate
ENV PATH=/opt/lead-migrate/bin:$PATH XDG_CACHE_HOME=/tmp/cache XDG_STATE_HOME=/tmp/state
RUN useradd --create-home --uid 1000 migrate && install --directory --owner migrate /stores
USER migrate
WORKDIR /stores
VOLUME /stores
ENTRYPOINT ["lead-migrate"]
CMD ["--help"]
