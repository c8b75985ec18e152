# An image of Spark with format("odradek") in the Python of the driver and the workers, for compose.spark.yaml. Build it
# in the root of the repository: docker build -f docker/spark.Dockerfile -t odradek-spark .
#
# BASE is a Debian image with pip and with Python 3.11 or later as python3. The versions are those in pyproject.toml.
ARG BASE=docker.io/library/python:3.13-slim-bookworm
FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY odradek odradek
COPY pyspark_odradek pyspark_odradek
RUN --mount=type=secret,id=pip,target=/etc/pip.conf python3 -m pip install --no-cache-dir '.[spark]'
RUN useradd --uid 1000 --create-home spark
USER 1000
WORKDIR /home/spark
# The default directory of a worker is inside the installed package, where this user may not write.
ENV PYSPARK_PYTHON=python3 PYTHONUNBUFFERED=1 SPARK_WORKER_DIR=/home/spark/work
