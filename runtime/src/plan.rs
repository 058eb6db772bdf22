//! Plans: what a launch of one exact problem does, resolved once and found again without rebuilding anything.
//!
//! A plan is found by the kernel, the config if the caller gave one, and each argument's kind, type, shape, strides
//! and alignment: a few dozen words, hashed and compared with no allocation. Everything that the checks of a launch
//! depend on is in these words, but for addresses: two arguments may alias in one launch and not in the next.

use crate::args::Arg;
use crate::bind::{BoundArg, BoundLaunch, is_written, scalar_bits};
use crate::cost::programs;
use crate::error::Result;
use crate::kernel::LoadedKernel;
use crate::launch_error::LaunchError;
use crate::plans::{Body, Slot};
use crate::problem::{alignment, launch_strides};
use atlas_codegen::{AbiParam, KernelImage};
use atlas_dsl::{Config, KernelDef};
use std::sync::Arc;

/// The words that name a problem, on the stack unless there are many.
pub(crate) struct ProblemWords {
    length: usize,
    inline: [u64; ProblemWords::INLINE],
    rest: Vec<u64>,
}

impl ProblemWords {
    const INLINE: usize = 96;

    /// The words of a launch. Arguments and parameters need not agree yet.
    pub(crate) fn new(def: &'static KernelDef, config: Option<&Config>, args: &[Arg<'_>]) -> ProblemWords {
        let mut words = ProblemWords { length: 0, inline: [0; ProblemWords::INLINE], rest: Vec::new() };
        words.push(std::ptr::from_ref(def) as usize as u64);
        match config {
            None => words.push(0),
            Some(config) => {
                words.push(1 + config.tile.len() as u64);
                for knob in def.tune {
                    words.push(config.tile.get(knob.name).map_or(u64::MAX, |&v| u64::from(v)));
                }
                config.schedule.words().into_iter().for_each(|word| words.push(word));
            }
        }
        for (i, arg) in args.iter().enumerate() {
            // `&mut` for what the kernel only reads is as good as `&`.
            let written = def.params.get(i).is_some_and(is_written);
            let kind = match arg {
                Arg::Out(_) | Arg::Lent(_) if written => 2,
                Arg::In(_) | Arg::Out(_) | Arg::Lent(_) => 1,
                Arg::F32(_) => 3,
                Arg::F64(_) => 4,
                Arg::I32(_) => 5,
                Arg::I64(_) => 6,
            };
            match arg.tensor() {
                None => words.push(kind),
                Some(t) => {
                    let class = u64::from(alignment(t));
                    words.push(kind | (t.dtype() as u64) << 8 | class << 16 | (t.rank() as u64) << 32);
                    t.shape().iter().for_each(|&n| words.push(n as u64));
                    t.strides().iter().for_each(|&s| words.push(s as u64));
                }
            }
        }
        words
    }

    fn push(&mut self, word: u64) {
        match self.inline.get_mut(self.length) {
            Some(place) => *place = word,
            None => {
                if self.rest.is_empty() {
                    self.rest.extend_from_slice(&self.inline);
                }
                self.rest.push(word);
            }
        }
        self.length += 1;
    }

    pub(crate) fn as_slice(&self) -> &[u64] {
        if self.rest.is_empty() { &self.inline[..self.length] } else { &self.rest }
    }
}

/// What a loaded kernel does for one problem.
pub(crate) fn gpu_body(bound: &BoundLaunch, kernel: Arc<LoadedKernel>) -> Result<Body> {
    match grid_size(bound, &kernel.image)? {
        0 => Ok(Body::Empty),
        grid => {
            let slots = slots(bound, &kernel.image)?;
            Ok(Body::Gpu { kernel, grid, slots })
        }
    }
}

/// How many programs one launch runs.
pub(crate) fn grid_size(bound: &BoundLaunch, image: &KernelImage) -> std::result::Result<u32, LaunchError> {
    let programs = programs(&image.grid, bound.dims());
    let too_many = |_| LaunchError::GridTooLarge { kernel: bound.def().name, programs };
    i32::try_from(programs).map(i32::unsigned_abs).map_err(too_many)
}

/// The parameters of the `.entry` for one problem.
pub(crate) fn slots(bound: &BoundLaunch, image: &KernelImage) -> std::result::Result<Vec<Slot>, LaunchError> {
    let wrong = || LaunchError::WrongAbi { kernel: image.entry.clone() };
    let arg = |index: u32| bound.args().get(index as usize).ok_or_else(wrong);
    let slot = |param: &AbiParam| match *param {
        AbiParam::Ptr(p) => match arg(p.as_u32())? {
            BoundArg::Tensor { .. } => Ok(Slot::Address(p.as_u32() as usize)),
            BoundArg::Scalar { .. } => Err(wrong()),
        },
        AbiParam::Dim(d) => bound.dims().get(d.as_u32() as usize).map(|&n| Slot::Bits(n)).ok_or_else(wrong),
        AbiParam::Stride(p, axis) => match arg(p.as_u32())? {
            BoundArg::Tensor { tensor, .. } => {
                launch_strides(tensor).get(usize::from(axis)).map(|&s| Slot::Bits(s as u64)).ok_or_else(wrong)
            }
            BoundArg::Scalar { .. } => Err(wrong()),
        },
        AbiParam::Scalar(p) => match arg(p.as_u32())? {
            BoundArg::Scalar { dtype, .. } => Ok(Slot::Number(p.as_u32() as usize, *dtype)),
            BoundArg::Tensor { .. } => Err(wrong()),
        },
        AbiParam::GridCount(axis) => {
            image.grid.get(usize::from(axis)).map(|&g| Slot::Bits(g.count(bound.dims()))).ok_or_else(wrong)
        }
    };
    image.params.iter().map(slot).collect()
}

/// The value of a slot for the arguments of one launch.
pub(crate) fn slot_bits(
    def: &'static KernelDef,
    slot: Slot,
    args: &[Arg<'_>],
) -> std::result::Result<u64, LaunchError> {
    match slot {
        Slot::Bits(bits) => Ok(bits),
        Slot::Address(i) => args[i].tensor().map(|t| t.address()).ok_or(LaunchError::NotPrepared { kernel: def.name }),
        Slot::Number(i, dtype) => scalar_bits(def.name, def.params[i].name(), dtype, &args[i]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::tensor::Tensor;
    use atlas_codegen::Target;
    use atlas_dsl::def::{DTypeRef, DimDef, ParamDef};
    use atlas_dsl::ir::{Access, GridExtent};
    use atlas_dsl::{DType, Diagnostics, Dim, Param};

    const F32: DTypeRef = DTypeRef::Fixed(DType::F32);
    static ROW: KernelDef = KernelDef {
        name: "row",
        doc: "",
        file: "",
        types: &[],
        dims: &[DimDef { name: "N", whole: false }, DimDef { name: "D", whole: false }],
        params: &[
            ParamDef::Tensor { name: "x", dtype: F32, dims: &[0, 1], access: Access::In },
            ParamDef::Scalar { name: "a", dtype: F32 },
        ],
        tune: &[],
        grid: &[],
        requires: &[],
        build: &|_, _| Err(Diagnostics::default()),
        refused: None,
    };

    fn bound(n: usize, d: usize) -> BoundLaunch {
        let x = Tensor::zeros(&Device::cpu(), DType::F32, [1, 1]).unwrap().expand([n, d]).unwrap();
        BoundLaunch::new(&ROW, &Device::cpu(), &crate::args!(x, 1.0)).unwrap()
    }

    fn image(params: &[AbiParam]) -> KernelImage {
        KernelImage {
            entry: "row".to_owned(),
            ptx: String::new(),
            ptx_version: (7, 1),
            target: Target { sm: 80, specific: false },
            params: params.to_vec(),
            grid: vec![GridExtent::Points(Dim::from_u32(0)), GridExtent::Tiles { dim: Dim::from_u32(1), size: 16 }],
            threads: 128,
            shared_bytes: 0,
        }
    }

    #[test]
    fn one_launch_has_a_most_of_programs() {
        assert_eq!(grid_size(&bound(3, 33), &image(&[])), Ok(9));
        assert_eq!(grid_size(&bound(0, 33), &image(&[])), Ok(0));
        let error = grid_size(&bound(1 << 20, 1 << 15), &image(&[])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error[ATL617]: `row` needs 2147483648 programs for this problem; one launch has at most 2147483647: \
             use larger tiles"
        );
    }

    #[test]
    fn an_image_that_does_not_fit_its_signature_is_refused() {
        let (x, a) = (Param::from_u32(0), Param::from_u32(1));
        let fits = [AbiParam::Ptr(x), AbiParam::Scalar(a), AbiParam::Dim(Dim::from_u32(1)), AbiParam::Stride(x, 1)];
        assert_eq!(slots(&bound(3, 5), &image(&fits)).unwrap().len(), 4);
        for wrong in [
            AbiParam::Ptr(a),
            AbiParam::Scalar(x),
            AbiParam::Stride(a, 0),
            AbiParam::Stride(x, 2),
            AbiParam::Dim(Dim::from_u32(2)),
            AbiParam::Ptr(Param::from_u32(2)),
            AbiParam::GridCount(2),
        ] {
            let Err(error) = slots(&bound(3, 5), &image(&[wrong])) else { panic!("{wrong:?} is accepted") };
            let want = "error[ATL619]: the compiled kernel `row` does not fit its signature; this is a bug of Atlas";
            assert_eq!(error.to_string(), want);
        }
    }
}
