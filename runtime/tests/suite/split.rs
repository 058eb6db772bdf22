//! Launches whose programs are split: several CTAs share a program, and the last one adds their partial tiles.

use atlas_codegen::{AbiParam, KernelImage};
use atlas_dsl::{Dim, Param};
use atlas_runtime::Device;

/// `scale` for f32 and D = 8, with 16 rows per program and three CTAs for each: one multiplies, one loads `r`, and one has nothing.
pub(crate) const PTX: &str = r"
.version 8.0
.target sm_90a
.address_size 64
.visible .entry scale(
  .param .u64 x, .param .u64 r, .param .f32 a, .param .u64 y, .param .u32 n, .param .u64 arrivals, .param .u64 partials
)
{
  .reg .pred %in, %p, %leader, %mine, %last;
  .reg .b32 %cta, %t, %program, %split, %i, %row, %n, %before;
  .reg .f32 %a, %v, %w;
  .reg .b64 %x, %r, %y, %arrivals, %partials, %at, %wide;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %t, %tid.x;
  ld.param.u64 %x, [x];
  ld.param.u64 %r, [r];
  ld.param.f32 %a, [a];
  ld.param.u64 %y, [y];
  ld.param.u32 %n, [n];
  ld.param.u64 %arrivals, [arrivals];
  ld.param.u64 %partials, [partials];
  div.u32 %program, %cta, 3;
  rem.u32 %split, %cta, 3;
  mad.lo.u32 %i, %program, 128, %t;
  shr.u32 %row, %i, 3;
  setp.lt.u32 %in, %row, %n;
  mul.wide.u32 %wide, %i, 4;
  mov.f32 %v, 0f00000000;
  setp.eq.and.u32 %p, %split, 0, %in;
  add.u64 %at, %x, %wide;
  @%p ld.global.f32 %v, [%at];
  mul.rn.f32 %v, %v, %a;
  setp.eq.and.u32 %p, %split, 1, %in;
  add.u64 %at, %r, %wide;
  @%p ld.global.f32 %v, [%at];
  mad.lo.u32 %i, %cta, 128, %t;
  mul.wide.u32 %at, %i, 4;
  add.u64 %at, %partials, %at;
  st.global.f32 [%at], %v;
  bar.sync 0;
  mul.wide.u32 %at, %program, 4;
  add.u64 %arrivals, %arrivals, %at;
  setp.eq.u32 %leader, %t, 0;
  mov.u32 %before, 0;
  @%leader atom.acq_rel.gpu.global.inc.u32 %before, [%arrivals], 2;
  setp.eq.u32 %mine, %before, 2;
  barrier.cta.red.or.aligned.pred %last, 0, %mine;
  @!%last bra done;
  mul.lo.u32 %i, %program, 384;
  add.u32 %i, %i, %t;
  mul.wide.u32 %at, %i, 4;
  add.u64 %at, %partials, %at;
  ld.global.f32 %v, [%at];
  ld.global.f32 %w, [%at+512];
  add.rn.f32 %v, %v, %w;
  ld.global.f32 %w, [%at+1024];
  add.rn.f32 %v, %v, %w;
  add.u64 %at, %y, %wide;
  @%in st.global.f32 [%at], %v;
done:
  ret;
}
";

/// The compiled kernel with this PTX.
pub(crate) fn image(device: &Device, ptx: &str) -> KernelImage {
    let param = Param::from_u32;
    KernelImage {
        ptx_version: (8, 0),
        params: vec![
            AbiParam::Ptr(param(0)),
            AbiParam::Ptr(param(1)),
            AbiParam::Scalar(param(2)),
            AbiParam::Ptr(param(3)),
            AbiParam::Dim(Dim::from_u32(0)),
            AbiParam::Arrivals,
            AbiParam::Partials,
        ],
        splits: 3,
        partial_bytes: 3 * 512,
        ..super::ptx::image(device, ptx, 0)
    }
}

/// `a * x + x` where `x` counts.
pub(crate) fn scaled(rows: usize, a: f32) -> Vec<f32> {
    (0..rows * 8).map(|i| i as f32 * (a + 1.0)).collect()
}

#[cfg(feature = "sim")]
mod simulated {
    use super::{PTX, image, scaled};
    use crate::kernels::SCALE;
    use crate::ptx::{counted, with_kernel};
    use atlas_codegen::KernelImage;
    use atlas_dsl::DType;
    use atlas_runtime::simulator::fault::FaultKind;
    use atlas_runtime::{CacheDir, Device, Launch, RuntimeError, SimOptions, SimPolicy, Target, Tensor, args};
    use tempfile::TempDir;

    const SM_90A: Target = Target { sm: 90, specific: true };

    /// A simulator with this image in its store, the result of one launch on 37 rows, and the error of the launch.
    fn launched(options: SimOptions, image: impl Fn(&Device) -> KernelImage) -> (Vec<f32>, Option<RuntimeError>) {
        let folder = TempDir::new().unwrap();
        let cache = CacheDir::At(folder.path().to_owned());
        let device = Device::sim_with(SM_90A, options, cache.clone());
        let device = with_kernel(device, cache, image, |d| counted(d, 37));
        let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
        // The second launch finds the arrivals that it needs.
        let mut launch = || SCALE.launch(&device, args!(x, x, 2.0, &mut y)).err();
        let error = launch().or_else(launch);
        (y.to_vec().unwrap(), error)
    }

    /// The fault of the kernel after a change of its text.
    #[track_caller]
    fn fault(find: &str, replace: &str) -> (FaultKind, String) {
        assert_eq!(PTX.matches(find).count(), 1, "{find}");
        let changed = PTX.replace(find, replace);
        match launched(SimOptions::default(), |d| image(d, &changed)).1 {
            Some(RuntimeError::Fault(fault)) => (fault.fault.kind, fault.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_last_cta_of_a_program_adds_the_partial_tiles() {
        for policy in [SimPolicy::RoundRobin, SimPolicy::Adversarial, SimPolicy::Random] {
            for seed in 0..3 {
                let (y, error) = launched(SimOptions { policy, seed, ..SimOptions::default() }, |d| image(d, PTX));
                assert!(error.is_none(), "{error:?}");
                assert_eq!(y, scaled(37, 2.0));
            }
        }
    }

    #[test]
    fn arrivals_that_are_left_are_a_fault() {
        let (kind, words) = fault("[%arrivals], 2;", "[%arrivals], 3;");
        assert_eq!(kind, FaultKind::Phase);
        assert_eq!(
            words,
            "error[ATL627]: `scale` on sim:sm_90a: Phase: the arrivals of program 0 are 3 after the launch: they must \
             be 0 for the next one"
        );
    }

    #[test]
    fn a_partial_tile_that_nobody_stores_gives_nans() {
        let changed = PTX.replace(
            "  st.global.f32 [%at], %v;\n  bar.sync",
            "  setp.ne.u32 %p, %split, 2;\n  @%p st.global.f32 [%at], %v;\n  bar.sync",
        );
        let (y, error) = launched(SimOptions::default(), |d| image(d, &changed));
        assert!(error.is_none(), "{error:?}");
        assert!(y.iter().all(|y| y.is_nan()), "{y:?}");
    }

    #[test]
    fn a_race_in_scratch_memory_is_found() {
        let (kind, words) = fault("atom.acq_rel.gpu", "atom.relaxed.gpu");
        assert!(kind == FaultKind::Race && words.contains("ld.global.f32"), "{words}");
        let (kind, words) = fault("  st.global.f32 [%at], %v;\n  bar.sync 0;\n", "  st.global.f32 [%at], %v;\n");
        assert!(kind == FaultKind::Race && words.contains("ld.global.f32"), "{words}");
    }

    #[test]
    fn scratch_memory_is_as_large_as_the_image_says() {
        let small = |d: &Device| KernelImage { partial_bytes: 2 * 512, ..image(d, PTX) };
        let Some(RuntimeError::Fault(found)) = launched(SimOptions::default(), small).1 else { panic!("no fault") };
        assert_eq!(found.fault.kind, FaultKind::OutOfBounds);
        // A count past the last program's.
        let (kind, _) = fault("mul.wide.u32 %at, %program, 4;", "mul.wide.u32 %at, %program, 8;");
        assert_eq!(kind, FaultKind::OutOfBounds);
    }
}
