# shellcheck shell=sh
# Managed by provision (role gpu_cuda): changes made here are undone by its next run.
# /usr/local/cuda is an alternative, so that this file stays the same whatever the default toolkit is.
if [ -d /usr/local/cuda/bin ]; then
    case ":$PATH:" in
    *:/usr/local/cuda/bin:*) ;;
    *) PATH="/usr/local/cuda/bin${PATH:+:$PATH}" ;;
    esac
    CUDA_HOME="${CUDA_HOME:-/usr/local/cuda}"
    export PATH CUDA_HOME
fi
