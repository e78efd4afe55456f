#!/usr/bin/env bash
# Sets up the environment of the simulator.
set -euo pipefail

CUDA=cu126
python3 -m venv .venv
. .venv/bin/activate
pip install --upgrade pip
pip install torch==2.6.0 torchvision==0.21.0 --index-url "https://download.pytorch.org/whl/${CUDA}"
pip install cupy-cuda12x==13.4.1
pip install -r requirements.txt
