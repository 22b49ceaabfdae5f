typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define WIDTH 32
#define CELLS 256
#define PAIRS ((K + 1) / 2)
#define THREADS (128 * K)
#ifndef SWAP
#define SWAP 0
#endif

__device__ __forceinline__ u32 shared(const void* at) { return (u32)__cvta_generic_to_shared(at); }
__device__ __forceinline__ void copy16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}
__device__ __forceinline__ void multiply(float (&d)[16], const u32 (&a)[4], u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, 1, 1, 1, 1;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// parts (blocks, K, K, out, in): the sum over cells of slopes times the input at each tap. A warpgroup has a row of taps.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
weigh(const u16* __restrict__ given, const u16* __restrict__ slopes, float* __restrict__ parts, int stride, int tiles,
      int segments, int length, int pitch, int between) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int apart = (CELLS + 8) * 16 + 32;  // between the planes of slopes; 32 modulo 128
    const int size = 4 * (between + apart);
    const int row = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, q = lane % 4;
    const u32 base = shared(memory);

    auto load = [&](int tile, int buffer) {
        const u16* from = given + ((i64)tile * CELLS - (K / 2) * (i64)stride - K / 2) * WIDTH + threadIdx.x % 4 * 8;
        u32 to = base + buffer * size + threadIdx.x % 4 * between;
        for (int s = 0; s < segments; ++s)
            for (int n = threadIdx.x / 4; n < length; n += THREADS / 4)
                copy16(to + 16 * (s * pitch + n), from + ((i64)s * stride + n) * WIDTH);
        from = slopes + ((i64)tile * CELLS - 1) * WIDTH + threadIdx.x % 4 * 8;
        to = base + buffer * size + 4 * between + threadIdx.x % 4 * apart;
        for (int n = threadIdx.x / 4; n < CELLS + 1; n += THREADS / 4) copy16(to + 16 * n, from + (i64)n * WIDTH);
    };

    float d[PAIRS][16];
    for (int p = 0; p < PAIRS; ++p)
        for (int i = 0; i < 16; ++i) d[p][i] = 0;
    // The slopes as the left factor: 16 of its 64 rows, (shift by one cell, channel), for this warp.
    const int shift = warp / 2, chunk = warp % 2 * 2 + lane / 8 % 2, along = lane / 16 * 8 + lane % 8;
    int buffer = 0;
    if ((int)blockIdx.x < tiles) load(blockIdx.x, 0);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, buffer ^= 1) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (tile + (int)gridDim.x < tiles) load(tile + gridDim.x, buffer ^ 1);
        const u32 left = base + buffer * size + 4 * between + chunk * apart + (along + 1 - shift) * 16;
        const u32 at = base + buffer * size + (row * pitch) * 16;
        const u64 matrix = SWAP ? (u64)(128 >> 4) << 32 | (u64)(between >> 4) << 16 | (at >> 4)
                                : (u64)(between >> 4) << 32 | (u64)(128 >> 4) << 16 | (at >> 4);
#pragma unroll 1
        for (int part = 0; part < CELLS / 64; ++part) {
            u32 a[4][4];
#pragma unroll
            for (int k = 0; k < 4; ++k)
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(a[k][0]), "=r"(a[k][1]), "=r"(a[k][2]), "=r"(a[k][3])
                             : "r"(left + (part * 64 + k * 16) * 16));
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int p = 0; p < PAIRS; ++p) multiply(d[p], a[k], matrix + (u32)(part * 64 + k * 16 + 2 * p));
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        }
    }
    for (int p = 0; p < PAIRS; ++p) {
        const int column = 2 * p + shift;
        if (column >= K) continue;
        for (int i = 0; i < 8; ++i) {
            const int out = warp % 2 * 16 + lane / 4 + i % 2 * 8, in = i / 2 * 8 + 2 * q;
            float* to = parts + ((((i64)blockIdx.x * K + row) * K + column) * WIDTH + out) * WIDTH + in;
            *(float2*)to = make_float2(d[p][i / 2 * 4 + i % 2 * 2], d[p][i / 2 * 4 + i % 2 * 2 + 1]);
        }
    }
}
