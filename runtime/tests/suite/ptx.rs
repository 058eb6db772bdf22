//! Hand-written PTX for a kernel of the tests, and devices with it in their store.

use crate::kernels::SCALE;
use atlas_codegen::{AbiParam, KernelImage};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::{DType, Dim, Param};
use atlas_runtime::{CacheDir, Device, Launch, Store, Tensor, args, build_kernel, kernel_key, specialize};

/// `scale` for f32 and D = 8: one thread per element, 16 rows per CTA.
pub(crate) const PTX: &str = r"
.version 7.1
.target sm_80
.address_size 64
.visible .entry scale(
  .param .u64 x, .param .u64 r, .param .f32 a, .param .u64 y, .param .u32 n, .param .u32 tiles, .param .u64 stride
)
{
  .reg .pred %p;
  .reg .b32 %i<8>;
  .reg .b64 %l<12>;
  .reg .f32 %f<5>;
  mov.u32 %i0, %ctaid.x;
  mov.u32 %i1, %tid.x;
  mad.lo.u32 %i2, %i0, 128, %i1;
  shr.u32 %i3, %i2, 3;
  and.b32 %i4, %i2, 7;
  ld.param.u32 %i5, [n];
  setp.ge.u32 %p, %i3, %i5;
  @%p bra done;
  ld.param.u32 %i6, [tiles];
  setp.ge.u32 %p, %i0, %i6;
  @%p bra done;
  ld.param.u64 %l0, [x];
  ld.param.u64 %l1, [r];
  ld.param.u64 %l2, [y];
  ld.param.f32 %f0, [a];
  ld.param.u64 %l7, [stride];
  mul.wide.u32 %l3, %i2, 4;
  cvt.u64.u32 %l8, %i3;
  cvt.u64.u32 %l9, %i4;
  mad.lo.u64 %l10, %l8, %l7, %l9;
  shl.b64 %l10, %l10, 2;
  add.u64 %l4, %l0, %l10;
  add.u64 %l5, %l1, %l3;
  add.u64 %l6, %l2, %l3;
  ld.global.f32 %f1, [%l4];
  ld.global.f32 %f2, [%l5];
  fma.rn.f32 %f3, %f0, %f1, %f2;
  st.global.f32 [%l6], %f3;
done:
  ret;
}
";

/// The compiled kernel with this PTX.
pub(crate) fn image(device: &Device, ptx: &str, shared_bytes: u32) -> KernelImage {
    let param = Param::from_u32;
    KernelImage {
        entry: "scale".to_owned(),
        ptx: ptx.to_owned(),
        ptx_version: (7, 1),
        target: device.target().unwrap(),
        params: vec![
            AbiParam::Ptr(param(0)),
            AbiParam::Ptr(param(1)),
            AbiParam::Scalar(param(2)),
            AbiParam::Ptr(param(3)),
            AbiParam::Dim(Dim::from_u32(0)),
            AbiParam::GridCount(0),
            AbiParam::Stride(param(0), 0),
        ],
        maps: Vec::new(),
        grid: vec![GridExtent::Tiles { dim: Dim::from_u32(0), size: 16 }],
        threads: 128,
        persistent: false,
        splits: 1,
        partial_bytes: 0,
        shared_bytes,
    }
}

/// A device whose disk cache already holds the kernel for the problem of these tensors.
pub(crate) fn with_kernel(
    device: Device,
    cache: CacheDir,
    image: impl Fn(&Device) -> KernelImage,
    x: impl Fn(&Device) -> Tensor,
) -> Device {
    with_kernels(device, cache, &[&image], x)
}

/// A device whose disk cache already holds the kernels of the best configs for the problem of these tensors.
pub(crate) fn with_kernels(
    device: Device,
    cache: CacheDir,
    images: &[&dyn Fn(&Device) -> KernelImage],
    x: impl Fn(&Device) -> Tensor,
) -> Device {
    let (x, r) = (x(&device), x(&device).contiguous().unwrap());
    let mut y = Tensor::empty(&device, DType::F32, x.shape()).unwrap();
    let bound = SCALE.bind(&device, args!(x, r, 1.0, &mut y)).unwrap();
    let selection = SCALE.select(&device, args!(x, r, 1.0, &mut y)).unwrap();
    let store = Store::new(cache);
    for (candidate, image) in selection.legal().zip(images) {
        let config = &candidate.config;
        let kernel = build_kernel(&SCALE, &specialize(&bound), config).unwrap();
        store.put(&kernel_key(&kernel, config.schedule, device.target().unwrap()), image(&device));
    }
    device
}

/// The numbers 0, 1, 2 and so on.
pub(crate) fn counted(device: &Device, rows: usize) -> Tensor {
    let values: Vec<f32> = (0..rows * 8).map(|i| i as f32).collect();
    device.tensor_from(&values, [rows, 8]).unwrap()
}
