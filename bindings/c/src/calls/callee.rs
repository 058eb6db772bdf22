//! What a launch has to know of a kernel or a chain.

use atlas::kernel::KernelDef;
use atlas_dsl::def::{DTypeRef, ParamDef};

/// What is called by name with arguments: a kernel or a chain.
pub(crate) trait Callee {
    /// Its name.
    fn name(&self) -> &'static str;
    /// A parameter by its number; `None` beyond the last one.
    fn param(&self, number: usize) -> Option<Param>;
    /// Its signature, for messages.
    fn signature(&self) -> String;
}

/// What a caller has to know of a parameter.
#[derive(Clone, Copy)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    /// Whether it is a number that is a float.
    pub(crate) is_float: bool,
}

impl Callee for KernelDef {
    fn name(&self) -> &'static str {
        self.name
    }

    fn param(&self, number: usize) -> Option<Param> {
        let param = self.params.get(number)?;
        Some(Param { name: param.name(), is_float: takes_floats(self, param) })
    }

    fn signature(&self) -> String {
        KernelDef::signature(self)
    }
}

/// Whether a parameter is a number that is a float, whatever the types of the launch.
pub(crate) fn takes_floats(kernel: &KernelDef, param: &ParamDef) -> bool {
    match *param {
        ParamDef::Scalar { dtype: DTypeRef::Fixed(dtype), .. } => dtype.is_float(),
        ParamDef::Scalar { dtype: DTypeRef::Generic(i), .. } => kernel.types[i].allowed.iter().all(|d| d.is_float()),
        ParamDef::Tensor { .. } => false,
    }
}
