//! The output of `atlas_kernel!`: a kernel's signature, its tune space and the function that builds it.

use crate::config::{Config, MOST_CONFIGS, Setting};
use crate::diag::{Diagnostic, Diagnostics};
use crate::ir::{Access, Kernel, Loc};
use crate::require::Requirement;
use crate::specialization::{DimFact, Specialization};
use crate::types::DType;
use std::fmt;
use std::panic::RefUnwindSafe;

/// A dtype in a signature: fixed, or one of the kernel's type parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DTypeRef {
    /// Written in the signature.
    Fixed(DType),
    /// The n-th type parameter.
    Generic(usize),
}

/// The bound on a type parameter: which dtypes it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeParamDef {
    /// The name, such as `T`.
    pub name: &'static str,
    /// The dtypes that the bound admits (`Float` is f16, bf16 and f32).
    pub allowed: &'static [DType],
}

/// A parameter in a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamDef {
    /// `x: &Tensor<T, [N, D]>` or `y: &mut Tensor<..>`.
    Tensor {
        /// Parameter name.
        name: &'static str,
        /// Element type.
        dtype: DTypeRef,
        /// Named dims as indices into [`KernelDef::dims`], outermost first.
        dims: &'static [usize],
        /// `&` or `&mut`.
        access: Access,
    },
    /// `eps: f32`.
    Scalar {
        /// Parameter name.
        name: &'static str,
        /// Its type.
        dtype: DTypeRef,
    },
}

impl ParamDef {
    /// The parameter's name.
    pub fn name(&self) -> &'static str {
        match self {
            ParamDef::Tensor { name, .. } | ParamDef::Scalar { name, .. } => name,
        }
    }
}

/// A named dim in a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DimDef {
    /// The name, such as `N`.
    pub name: &'static str,
    /// True if the kernel uses the dim whole (`..`): it is then a constant of the specialization.
    pub whole: bool,
}

/// One knob of a tune space: a tile size or a schedule key, and the values it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuneDef {
    /// `BN`, `stages`, ...
    pub name: &'static str,
    /// Allowed values, in the order written; the first is the safe default.
    pub values: &'static [Setting],
}

/// How one axis of a kernel's grid is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridSize {
    /// By elements.
    Point,
    /// By tiles of a knob, as an index into [`KernelDef::tune`].
    Knob(usize),
    /// By tiles of another size.
    Other,
}

/// One axis of a kernel's grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridDef {
    /// The dim, as an index into [`KernelDef::dims`].
    pub dim: usize,
    /// What it is counted by.
    pub size: GridSize,
}

/// Builds Tile IR for one specialization and config.
pub type Build = dyn Fn(&Specialization, &Config) -> Result<Kernel, Diagnostics> + Sync + RefUnwindSafe;

/// A kernel as declared in source. `atlas_kernel!` makes one `static` per kernel, and `fuse!` makes one from several.
pub struct KernelDef {
    /// The kernel's name.
    pub name: &'static str,
    /// Its doc comment.
    pub doc: &'static str,
    /// The source file that declares it.
    pub file: &'static str,
    /// Type parameters.
    pub types: &'static [TypeParamDef],
    /// Named dims, in order of first appearance.
    pub dims: &'static [DimDef],
    /// Parameters in signature order.
    pub params: &'static [ParamDef],
    /// The tune space: the product of the knobs.
    pub tune: &'static [TuneDef],
    /// The axes of the grid, slowest first.
    pub grid: &'static [GridDef],
    /// Conditions on the sizes of its dims.
    pub requires: &'static [Requirement],
    /// Builds Tile IR for one specialization and config.
    pub build: &'static Build,
    /// Why there is no such kernel: the signatures of its parts do not fit together.
    pub refused: Option<&'static Diagnostics>,
}

/// What is declared as a kernel: by `atlas_kernel!`, or from other kernels by `fuse!`.
pub trait Declared: fmt::Debug + Sync + RefUnwindSafe {
    /// The declaration.
    fn declared(&'static self) -> &'static KernelDef;

    /// The tensors between its parts that the fused kernel eliminated, for one specialization and config. Empty if it has no
    /// parts.
    ///
    /// # Errors
    /// Why the parts cannot be fused.
    fn removed(&'static self, _spec: &Specialization, _config: &Config) -> Result<Vec<Removed>, Diagnostics> {
        Ok(Vec::new())
    }
}

/// A tensor between two kernels that the fusion replaced by tiles, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The tensor, by its maker's name for it.
    pub tensor: String,
    /// Its dims in the fused kernel.
    pub dims: Vec<String>,
    /// Its element type.
    pub dtype: DType,
    /// The kernel that wrote it.
    pub maker: String,
    /// The kernel that read it.
    pub reader: String,
    /// The rule of fusion that applied, and the equality behind it.
    pub rule: (&'static str, &'static str),
    /// The number of loops around the code that makes its tile.
    pub loops: usize,
    /// Dims along which several programs compute the same tile.
    pub again: Vec<String>,
}

impl Declared for KernelDef {
    fn declared(&'static self) -> &'static KernelDef {
        self
    }
}

impl fmt::Debug for KernelDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelDef").field("name", &self.name).field("params", &self.params).finish_non_exhaustive()
    }
}

impl KernelDef {
    /// What is known of a problem with all type parameters of one element type, these sizes in the order of `dims`, and contiguous
    /// tensors.
    pub fn specialization(&self, dtype: DType, dims: &[u64]) -> Specialization {
        let typed = self.types.iter().fold(Specialization::default(), |spec, t| spec.with_type(t.name, dtype));
        self.dims.iter().zip(dims).fold(typed, |spec, (d, &n)| spec.with_dim(d.name, DimFact::of(d.whole, n)))
    }

    /// These sizes of dims, in the order of `dims`, and those that follow from them by what the kernel requires.
    pub fn with_implied(&self, mut dims: Vec<Option<u64>>) -> Vec<Option<u64>> {
        while let Some((dim, size)) =
            self.requires.iter().filter_map(|r| r.implied(&dims)).find(|(dim, _)| dims[*dim].is_none())
        {
            dims[dim] = Some(size);
        }
        dims
    }

    /// Why the kernel cannot be used, if so: its parts do not fit together, or its tune space is too large.
    pub fn refusal(&self) -> Option<Diagnostics> {
        if let Some(why) = self.refused {
            return Some(why.clone());
        }
        let configs = self.config_count();
        if configs <= MOST_CONFIGS {
            return None;
        }
        let counts = self.tune.iter().filter(|knob| knob.values.len() > 1);
        let counts = counts.map(|knob| format!("{} of `{}`", knob.values.len(), knob.name)).collect::<Vec<_>>();
        let (name, counts) = (self.name, counts.join(", "));
        let message = format!(
            "`{name}` has {configs} configs ({counts}), and a kernel may have {MOST_CONFIGS}: leave out values"
        );
        Some(Diagnostic::new(23, Loc::default(), message).into())
    }

    /// The product of the numbers of values of the knobs; saturates.
    fn config_count(&self) -> u64 {
        self.tune.iter().fold(1, |n: u64, knob| n.saturating_mul(knob.values.len() as u64))
    }

    /// Every point of the tune space, in lexicographic order of the knobs as declared. Schedules whose keys contradict each
    /// other are left out. Empty for a tune space that is too large ([`KernelDef::refusal`]).
    pub fn configs(&self) -> Vec<Config> {
        if self.config_count() > MOST_CONFIGS {
            return Vec::new();
        }
        let mut all = self.tune.iter().fold(vec![Config::default()], |configs, knob| {
            configs.iter().flat_map(|c| knob.values.iter().map(|&v| c.clone().with(knob.name, v))).collect()
        });
        all.retain(|c| c.schedule.is_consistent());
        all
    }

    /// Its signature in the language of kernels, with the types that a type parameter may be:
    /// `softmax<T: bf16 | f16 | f32>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)`.
    pub fn signature(&self) -> String {
        let types = self.types.iter().map(|t| {
            let allowed: Vec<&str> = t.allowed.iter().map(|d| d.name()).collect();
            format!("{}: {}", t.name, allowed.join(" | "))
        });
        let types = types.collect::<Vec<_>>().join(", ");
        let types = if types.is_empty() { types } else { format!("<{types}>") };
        let params: Vec<String> = self.params.iter().map(|p| self.param_text(p)).collect();
        format!("{}{types}({})", self.name, params.join(", "))
    }

    /// One of its parameters as the signature has it: `x: &Tensor<T, [N, D]>`.
    pub fn param_text(&self, param: &ParamDef) -> String {
        let dtype = |of: DTypeRef| match of {
            DTypeRef::Fixed(dtype) => dtype.name(),
            DTypeRef::Generic(i) => self.types[i].name,
        };
        match *param {
            ParamDef::Scalar { name, dtype: of } => format!("{name}: {}", dtype(of)),
            ParamDef::Tensor { name, dtype: of, dims, access } => {
                let borrow = if access == Access::Out { "&mut " } else { "&" };
                let dims: Vec<&str> = dims.iter().map(|&d| self.dims[d].name).collect();
                format!("{name}: {borrow}Tensor<{}, [{}]>", dtype(of), dims.join(", "))
            }
        }
    }

    /// Sizes of the dims, in the signature's order, by name: `N=32768 D=8192`.
    pub fn dims_text(&self, sizes: &[u64]) -> String {
        self.dims.iter().zip(sizes).map(|(d, n)| format!("{}={n}", d.name)).collect::<Vec<_>>().join(" ")
    }

    /// Whether a config is a point of the tune space. Where the space leaves open whether operands are packed, a point stands for both.
    pub fn has_config(&self, config: &Config) -> bool {
        let is_known = |knob: &TuneDef| config.get(knob.name).is_some_and(|value| knob.values.contains(&value));
        let values = self.tune.iter().filter_map(|knob| Some((knob.name, config.get(knob.name)?)));
        // What is no knob is as it always is.
        let mut plain = values.fold(Config::default(), |c, (name, value)| c.with(name, value));
        if plain.schedule.operands.is_none() && config.schedule.packs_operands() {
            plain.schedule.operands = config.schedule.operands;
        }
        self.tune.iter().all(is_known) && plain == *config && config.schedule.is_consistent()
    }

    /// The config made of each knob's first value.
    pub fn default_config(&self) -> Config {
        self.tune.iter().fold(Config::default(), |c, k| match k.values.first() {
            Some(&v) => c.with(k.name, v),
            None => c,
        })
    }
}

/// A registry entry: kernels register themselves where they are declared.
pub struct Registered(pub &'static dyn Declared);

inventory::collect!(Registered);

/// Every kernel linked into this program, by name.
pub fn registry() -> Vec<&'static KernelDef> {
    let mut all: Vec<_> = declarations().map(Declared::declared).collect();
    all.sort_by_key(|k| k.name);
    all
}

/// Every declaration linked into this program.
pub fn declarations() -> impl Iterator<Item = &'static dyn Declared> {
    inventory::iter::<Registered>.into_iter().map(|r| r.0)
}
