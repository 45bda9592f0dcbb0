# The service as an image. `make image-commands` runs the RUN commands below in a temporary folder, so that they are known
# to work where no container engine is at hand; `make lint` checks this file with hadolint.

FROM python:3.11-slim-bookworm AS build

WORKDIR /build

# The dependencies first: they change less often than the code.
COPY requirements.lock requirements-build.lock ./
RUN python3 -m venv /opt/inferplan \
    && /opt/inferplan/bin/python -m pip install --no-cache-dir --require-hashes -r requirements.lock
RUN python3 -m venv /opt/build-tools \
    && /opt/build-tools/bin/python -m pip install --no-cache-dir --require-hashes -r requirements-build.lock

COPY LICENSE README.md pyproject.toml ./
COPY third_party third_party
COPY proto proto
COPY migrations migrations
COPY service service
RUN /opt/build-tools/bin/python -m hatchling build -t wheel -d dist \
    && /opt/inferplan/bin/python -m pip install --no-cache-dir --no-index --no-deps dist/*.whl \
    && /opt/inferplan/bin/python -m pip check
# Copied below with its owner: the only folder that the service writes to.
RUN mkdir -p /var/lib/inferplan


FROM python:3.11-slim-bookworm

COPY --from=build /opt/inferplan /opt/inferplan
COPY --from=build --chown=65532:65532 /var/lib/inferplan /var/lib/inferplan
COPY deploy/health_check.py /opt/inferplan/health_check.py

# Bytecode came with the build, so the root file system can be mounted read-only; compiled kernels are cached beside the data.
ENV PATH=/opt/inferplan/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/lib/inferplan/numba \
    INFERPLAN_LISTEN=0.0.0.0:7460 \
    INFERPLAN_DATABASE_URL=sqlite:////var/lib/inferplan/inferplan.db

# A number and not a name, so that an orchestrator can see that it is not root.
USER 65532:65532
WORKDIR /var/lib/inferplan
VOLUME /var/lib/inferplan
EXPOSE 7460

HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "/opt/inferplan/health_check.py"]

STOPSIGNAL SIGTERM
ENTRYPOINT ["inferplan"]
CMD ["serve"]
