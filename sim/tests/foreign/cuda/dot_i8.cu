// Integer products: dp4a, funnel shifts, byte permutation, 128-bit multiplication by carries, remainders.

extern "C" __global__ void dot_i8(const int* a, const int* b, int* dot, unsigned long long* mixed, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i], y = b[i];
    dot[i] = __dp4a(x, y, (int)__byte_perm(x, y, 0x6240)) + __funnelshift_l(x, y, i) - __vabsdiffu4(x, y);
    unsigned __int128 wide = (unsigned __int128)((unsigned long long)(unsigned)x << 32 | (unsigned)y) *
                             0x9E3779B97F4A7C15ull;
    unsigned long long high = (unsigned long long)(wide >> 64) + (unsigned long long)wide;
    mixed[i] = high % (unsigned)(x | 1) ^ __brevll(high) ^ (unsigned long long)((long long)high / (y | 3));
}
