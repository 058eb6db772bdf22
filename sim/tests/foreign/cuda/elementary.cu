// Elementary functions at full precision, f32 and f64: the library's branches, tables and local arrays.

extern "C" __global__ void elementary(const float* x, float* f, double* d, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    f[i] = sinf(v);
    f[n + i] = expf(v * 0.0625f);
    f[2 * n + i] = logf(fabsf(v) + 1e-3f);
    f[3 * n + i] = tanhf(v);
    f[4 * n + i] = erff(v);
    f[5 * n + i] = powf(fabsf(v), 1.25f);
    f[6 * n + i] = v / (v * v + 1);
    f[7 * n + i] = sqrtf(fabsf(v));
    double w = v;
    d[i] = cbrt(w);
    d[n + i] = exp(w * 0.0625);
    d[2 * n + i] = log(fabs(w) + 1e-3);
    d[3 * n + i] = w / (w * w + 1);
    d[4 * n + i] = sqrt(fabs(w));
}
