// Histogram of bytes: atomics on shared memory, then on global memory.

constexpr int BINS = 256;

extern "C" __global__ void histogram(const uchar4* data, unsigned* bins, int quads) {
    __shared__ unsigned local[BINS];
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += gridDim.x * blockDim.x) {
        uchar4 v = data[i];
        atomicAdd(&local[v.x], 1);
        atomicAdd(&local[v.y], 1);
        atomicAdd(&local[v.z], 1);
        atomicAdd(&local[v.w], 1);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += blockDim.x)
        if (local[i]) atomicAdd(&bins[i], local[i]);
}
