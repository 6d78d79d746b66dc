# SPDX-License-Identifier: BSD-3-Clause
# Runs a command as clients of CUDA's Multi-Process Service, of a daemon of its own: sh
# cmake/with_mps.sh COMMAND... Kernels of several processes then run on one GPU at the same time.
control=$(command -v nvidia-cuda-mps-control) || {
  echo "with_mps: skipped, no nvidia-cuda-mps-control in PATH (it comes with the driver)"
  exit 0
}
folder=$(mktemp -d)
export CUDA_MPS_PIPE_DIRECTORY="$folder/pipe" CUDA_MPS_LOG_DIRECTORY="$folder/log"
mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
if ! "$control" -d; then
  echo "with_mps: skipped, the Multi-Process Service does not start here"
  rm -rf "$folder"
  exit 0
fi
"$@"
result=$?
echo quit | "$control"
rm -rf "$folder"
exit $result
