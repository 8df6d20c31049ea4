# The workbench for a machine with NVIDIA GPUs (or without): docs/docker.md. PyTorch's wheel brings CUDA; the host needs
# the driver and the NVIDIA Container Toolkit.
FROM python:3.11-slim

# A compiler: Triton builds its launchers at the first compiled kernel.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 workbench \
    && mkdir -p /data/huggingface /data/workspace \
    && chown -R workbench /data

ENV HF_HOME=/data/huggingface \
    WORKBENCH_WORKSPACE=/data/workspace \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1

WORKDIR /app
COPY requirements.txt .
RUN pip install -r requirements.txt
COPY . .

USER workbench
VOLUME /data
EXPOSE 7860
# Any address but loopback asks for WORKBENCH_AUTH=NAME:PASSWORD, and does not start without.
ENTRYPOINT ["python", "app.py"]
CMD ["--host", "0.0.0.0"]
