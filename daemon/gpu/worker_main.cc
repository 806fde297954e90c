// shunt-gpu-worker: shuntd starts it, one a GPU. By hand it lists GPUs.
#include "daemon/gpu/worker_program.h"
#include "runtime/gpu/kernels/executor.h"

int main(int argc, char** argv) {
  return shunt::daemon::WorkerMain(argc, argv, shunt::gpu::MakeKernelExecutor);
}
