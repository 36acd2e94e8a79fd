# docker build -t floorcast:0.1.0 .
FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
# The versions of the lock, without what only tests need.
RUN sed -e '/^ *--hash=/d' -e 's/ *\\$//' requirements.lock > /tmp/constraints.txt \
 && python -m venv /opt/floorcast \
 && /opt/floorcast/bin/pip install --no-cache-dir --disable-pip-version-check -c /tmp/constraints.txt .

FROM python:3.11-slim
COPY --from=build /opt/floorcast /opt/floorcast
# HOME and caches are in /tmp, since the root file system is read-only in deploy/kubernetes.
ENV PATH=/opt/floorcast/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["floorcast"]
