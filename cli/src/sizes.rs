//! The user's sizes of dims and their checks, shared by all verbs.

use anyhow::{Context, Result, anyhow, bail};
use atlas_dsl::def::ParamDef;
use atlas_dsl::ir::{Access, DimSize};
use atlas_dsl::{Kernel, KernelDef, Requirement};
use atlas_ops::plans::Plan;
use atlas_runtime::{LaunchError, MAX_DIM};
use std::collections::BTreeMap;

/// The most elements of a tensor: more than fit on any GPU.
const MOST_ELEMENTS: u64 = 1 << 40;

/// Sizes by dim.
pub(super) type Sizes = BTreeMap<String, u64>;

/// The user's sizes, completed by the usual ones of a kernel that ships with Atlas.
pub(super) fn dims(def: &KernelDef, text: Option<&str>) -> Result<Sizes> {
    let usual = if atlas_ops::op::ships(def) { atlas_ops::cases::usual_dims(def.name) } else { Vec::new() };
    dims_beside(def, &usual, text)
}

/// The user's sizes, completed by `usual`, which is in the signature's order.
pub(super) fn dims_beside(def: &KernelDef, usual: &[u64], text: Option<&str>) -> Result<Sizes> {
    let mut dims: Sizes = def.dims.iter().map(|d| d.name.to_owned()).zip(usual.iter().copied()).collect();
    let names: Vec<&str> = def.dims.iter().map(|d| d.name).collect();
    dims.extend(given(def.name, &names, text)?);
    possible(def, &dims)?;
    Ok(dims)
}

/// A plan at the user's sizes, of which none may be 0.
pub(super) fn of_plan(plan: Plan, text: Option<&str>) -> Result<Plan> {
    let given = given(plan.name, plan.dims(), text)?;
    if let Some((name, size)) = given.iter().find(|(_, size)| **size == 0 || **size > MAX_DIM as u64) {
        bail!("`{name}` of `{}` is {size}: it may be 1 to {MAX_DIM}", plan.name);
    }
    Ok(plan.resized(|name| given.get(name).map(|size| *size as usize)))
}

/// The user's sizes of the dims of a kernel.
fn given(kernel: &str, names: &[&str], text: Option<&str>) -> Result<Sizes> {
    let mut given = Sizes::new();
    for pair in text.unwrap_or("").split([',', ' ']).filter(|p| !p.is_empty()) {
        let (name, size) = pair.split_once('=').with_context(|| format!("`{pair}` is not NAME=SIZE"))?;
        let size = size.parse().map_err(|_| anyhow!("`{size}` in `{pair}` is not a size"))?;
        if !names.contains(&name) {
            bail!("`{kernel}` has no dim `{name}`; its dims are {}", names.join(", "));
        }
        if given.insert(name.to_owned(), size).is_some() {
            bail!("`{name}` is given twice in `{}`; --dims once for each problem", text.unwrap_or(""));
        }
    }
    Ok(given)
}

/// The sizes of the dims of a `.tile` file: those that are written in it, and the user's of the others.
pub(super) fn of_file(kernel: &Kernel, text: Option<&str>) -> Result<Sizes> {
    let names: Vec<&str> = kernel.dims.values().map(|d| d.name.as_str()).collect();
    let mut dims = given(&kernel.name, &names, text)?;
    for d in kernel.dims.values() {
        let name = &d.name;
        match (d.size, dims.get(name)) {
            (DimSize::Const(n), Some(&size)) if size != n => bail!("dim `{name}` is {n} in the file, not {size}"),
            (DimSize::Const(n), _) => _ = dims.insert(name.clone(), n),
            (DimSize::Dynamic { divisor }, Some(&size)) if !size.is_multiple_of(u64::from(divisor)) => {
                bail!("dim `{name}` is a multiple of {divisor} in the file, and {size} is none")
            }
            (DimSize::Dynamic { .. }, Some(&size)) if size == 0 || size > MAX_DIM as u64 => {
                bail!("dim `{name}` is {size}: it may be 1 to {MAX_DIM}")
            }
            (DimSize::Dynamic { .. }, _) => {}
        }
    }
    Ok(dims)
}

/// Refuses sizes that no tensor can have. Missing sizes are not checked.
pub(super) fn possible(def: &KernelDef, dims: &Sizes) -> Result<()> {
    for (name, &size) in def.dims.iter().filter_map(|d| Some((d.name, dims.get(d.name)?))) {
        if size > MAX_DIM as u64 {
            bail!("dim `{name}` of `{}` is {size}: it may be {MAX_DIM} at the most", def.name);
        }
    }
    for param in def.params {
        let ParamDef::Tensor { name, dims: axes, .. } = param else { continue };
        let shape: Option<Vec<u64>> = axes.iter().map(|&d| dims.get(def.dims[d].name).copied()).collect();
        let Some(shape) = shape else { continue };
        let elements = shape.iter().try_fold(1_u64, |n, &size| n.checked_mul(size));
        if !shape.contains(&0) && elements.is_none_or(|n| n > MOST_ELEMENTS) {
            bail!("`{name}` of `{}` has more elements at {} than any GPU holds", def.name, text(def, dims));
        }
    }
    Ok(())
}

/// Refuses sizes at which a kernel writes nothing: no program runs, so there is nothing to report.
pub(super) fn runs(def: &KernelDef, dims: &Sizes) -> Result<()> {
    if writes_nothing(def, dims) {
        bail!("`{}` writes nothing at {}, and so nothing runs", def.name, text(def, dims));
    }
    Ok(())
}

/// True if each tensor that is written has a dim of size 0.
pub(super) fn writes_nothing(def: &KernelDef, dims: &Sizes) -> bool {
    def.params.iter().all(|p| match p {
        ParamDef::Tensor { access: Access::Out, dims: axes, .. } => {
            axes.iter().any(|&d| dims.get(def.dims[d].name) == Some(&0))
        }
        _ => true,
    })
}

/// Refuses sizes that do not meet a kernel's `require`. Requirements on missing sizes are not checked.
pub(super) fn required(def: &KernelDef, dims: &Sizes) -> Result<()> {
    let names: Vec<&str> = def.dims.iter().map(|d| d.name).collect();
    let sizes: Vec<u64> = names.iter().map(|n| dims.get(*n).copied().unwrap_or_default()).collect();
    let is_known = |r: &Requirement| r.dims().iter().all(|&d| dims.contains_key(names[d]));
    let Some(unmet) = def.requires.iter().find(|r| is_known(r) && !r.holds(&sizes)) else { return Ok(()) };
    let given: Vec<String> = unmet.dims().iter().map(|&d| format!("{} = {}", names[d], sizes[d])).collect();
    let (requirement, sizes) = (unmet.text(&names).to_string(), given.join(", "));
    Err(LaunchError::Unmet { kernel: def.name, requirement, sizes }.into())
}

/// `N=32768 D=8192`, in the signature's order.
fn text(def: &KernelDef, dims: &Sizes) -> String {
    let given = def.dims.iter().filter_map(|d| Some(format!("{}={}", d.name, dims.get(d.name)?)));
    given.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::input;
    use super::*;

    #[test]
    fn sizes_of_which_no_tensor_is_are_refused() {
        let def = input::kernel("softmax").expect("a kernel");
        let of = |text: &str| dims(def, Some(text)).map_err(|e| e.to_string());
        assert!(of("N=2147483647,D=1").is_ok());
        for n in ["2147483648", "4294967296", "18446744073709551615"] {
            let most = format!("dim `N` of `softmax` is {n}: it may be 2147483647 at the most");
            assert_eq!(of(&format!("N={n}")), Err(most));
        }
        for n in ["-1", "1e3", "", "18446744073709551616", "0x10", " 5"] {
            assert!(of(&format!("N={n}")).is_err(), "{n}");
        }
        assert!(of("N=2147483647,D=65536").is_err_and(|e| e.contains("has more elements at N=2147483647 D=65536")));
        assert!(of("N=1 N=2").is_err_and(|e| e.contains("`N` is given twice")));
    }

    #[test]
    fn at_no_elements_nothing_runs() {
        let def = input::kernel("softmax").expect("a kernel");
        let of = |text: &str| runs(def, &dims(def, Some(text)).expect("sizes")).map_err(|e| e.to_string());
        assert_eq!(of("N=0,D=64"), Err("`softmax` writes nothing at N=0 D=64, and so nothing runs".to_owned()));
        assert_eq!(of("N=1,D=64"), Ok(()));
    }

    #[test]
    fn what_is_not_typed_is_the_usual_size() {
        let def = input::kernel("softmax").expect("a kernel");
        let of = |text: &str| dims_beside(def, &[7, 9], Some(text)).expect("sizes");
        assert_eq!(of("D=4"), Sizes::from([("N".to_owned(), 7), ("D".to_owned(), 4)]));
    }
}
