# SPDX-License-Identifier: BSD-3-Clause
# altorch from a wheel of `make wheel`, with torch for CPUs. pip's arguments name the index of torch's smaller CPU build:
#   docker build -f packaging/docker/cpu.Dockerfile -t altorch-cpu --build-arg TORCH_FROM="--index-url <torch's CPU index>" dist
#   docker run --rm altorch-cpu torchrun --nproc-per-node 2 -m altorch check
FROM python:3.12-slim-bookworm
ARG TORCH_FROM=""
RUN pip install --no-cache-dir "torch>=2.11,<2.16" ${TORCH_FROM}
COPY altorch-*-cp312-*.whl /tmp/
RUN pip install --no-cache-dir /tmp/altorch-*.whl && rm /tmp/altorch-*.whl
# A container has 64 MiB of /dev/shm at first; altorch's shared memory is anonymous and does not need it.
ENV OMP_NUM_THREADS=1
CMD ["altorch", "info"]
