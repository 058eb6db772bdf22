// Sorts 512 keys with their values in dynamic shared memory: compare and exchange under divergent branches.

extern "C" __global__ void __launch_bounds__(256) bitonic_sort(int* keys, short* values) {
    extern __shared__ int ks[];
    short* vs = (short*)(ks + 512);
    keys += blockIdx.x * 512;
    values += blockIdx.x * 512;
    for (int i = threadIdx.x; i < 512; i += 256) {
        ks[i] = keys[i];
        vs[i] = values[i];
    }
    for (int size = 2; size <= 512; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            int i = 2 * threadIdx.x - (threadIdx.x & (stride - 1)), j = i + stride;
            if ((ks[i] > ks[j]) == ((i & size) == 0)) {
                int k = ks[i];
                ks[i] = ks[j];
                ks[j] = k;
                short v = vs[i];
                vs[i] = vs[j];
                vs[j] = v;
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < 512; i += 256) {
        keys[i] = ks[i];
        values[i] = vs[i];
    }
}
