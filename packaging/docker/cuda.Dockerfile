# SPDX-License-Identifier: BSD-3-Clause
# altorch from a wheel of `make wheel`, with torch for CUDA; the image needs no CUDA toolkit:
#   docker build -f packaging/docker/cuda.Dockerfile -t altorch-cuda dist
#   docker run --rm --gpus all altorch-cuda torchrun --nproc-per-node 2 -m altorch check
# GPUs map each other's memory between containers only in one IPC namespace: --ipc=host.
FROM python:3.12-slim-bookworm
RUN pip install --no-cache-dir "torch>=2.11,<2.16"
COPY altorch-*-cp312-*.whl /tmp/
RUN pip install --no-cache-dir /tmp/altorch-*.whl && rm /tmp/altorch-*.whl
ENV OMP_NUM_THREADS=1
CMD ["altorch", "info"]
