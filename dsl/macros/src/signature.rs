//! Signatures: parameters, dims, element types and knobs.

use crate::ast::{self, KernelSyntax, ParamSyntaxKind};
use crate::error::Errors;
use crate::names::nearest;
use crate::tree::{DTypeRef, Dim, Param, ParamKind};
use atlas_vocabulary::{DType, MOST_CONFIGS, Order, Programs, SCHEDULE, ScheduleKey, Setting, key_elsewhere};
use proc_macro2::Ident;

/// The schedule keys of a tune space.
pub(crate) fn schedule_keys() -> impl Iterator<Item = &'static str> {
    SCHEDULE.iter().map(|key| key.name)
}

/// True for the names of dims, tile sizes and consts.
pub(crate) fn is_upper(name: &Ident) -> bool {
    name.to_string().chars().all(|c| !c.is_lowercase()) && name != "_"
}

/// Checks the knobs.
pub(crate) fn check_tune(ast: &KernelSyntax, errors: &mut Errors) {
    for (i, knob) in ast.tune.iter().enumerate() {
        let (name, span) = (&knob.name, knob.name.span());
        if ast.tune[..i].iter().any(|k| k.name == *name) {
            errors.push(4, span, format!("knob `{name}` is declared twice"));
        }
        if knob.values.is_empty() {
            errors.push(23, span, format!("knob `{name}` has no values; the first value is the safe default"));
        }
        let key = ScheduleKey::named(&name.to_string());
        let refused = key.and_then(|key| knob.values.iter().find_map(|&value| key.refuses(value)));
        if let Some(why) = refused {
            errors.push(23, span, format!("no device runs this schedule: {why}"));
        } else if knob.values.contains(&Setting::Number(0)) {
            errors.push(23, span, format!("knob `{name}` may be 0; its values start at 1"));
        }
        if !is_upper(name) && key.is_none() {
            let upper = name.to_string().to_uppercase();
            let hint = match key_elsewhere(&name.to_string()) {
                hint if hint.is_empty() => format!("; if it is a tile size, write `{upper}`"),
                hint => hint,
            };
            let keys = schedule_keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            let message = format!("`{name}` is no schedule key (those are {keys}) and no upper-case tile size{hint}");
            errors.push(23, span, message);
        }
    }
    let configs = ast.tune.iter().fold(1, |n: u64, knob| n.saturating_mul(knob.values.len() as u64));
    if let Some(longest) = ast.tune.iter().max_by_key(|knob| knob.values.len())
        && configs > MOST_CONFIGS
    {
        let counts = ast.tune.iter().filter(|knob| knob.values.len() > 1);
        let counts = counts.map(|knob| format!("{} of `{}`", knob.values.len(), knob.name)).collect::<Vec<_>>();
        let message = format!(
            "{configs} configs ({}) are more than the {MOST_CONFIGS} that a kernel may have, for its first launch looks at \
             each: leave out values, such as sizes between the powers of two",
            counts.join(", ")
        );
        errors.push(23, longest.name.span(), message);
    }
    check_splits(ast, errors);
    let Some(grids) = knob(ast, "warp_grid") else { return };
    let warps = knob(ast, "warps").map_or(&[Setting::Number(4)][..], |knob| &knob.values);
    for grid in &grids.values {
        let Setting::WarpGrid(Some(g)) = grid else { continue };
        let n = g.warps();
        if n > 0 && !warps.contains(&Setting::Number(n)) {
            errors.push(23, grids.name.span(), format!("warp_grid = {grid} has {n} warps, and `warps` is never {n}"));
        }
    }
    if let (Some(Setting::WarpGrid(Some(grid))), Some(first)) = (grids.values.first(), warps.first())
        && *first != Setting::Number(grid.warps())
        && warps.contains(&Setting::Number(grid.warps()))
    {
        let (n, of) = (grid.warps(), grids.values[0]);
        let message = format!(
            "the first values are the safe default, and warp_grid = {of} has {n} warps where `warps` begins with {first}; put `auto` first"
        );
        errors.push(23, grids.name.span(), message);
    }
}

/// Checks that some config does not split its programs over CTAs that run several, and the first one does not.
fn check_splits(ast: &KernelSyntax, errors: &mut Errors) {
    let (Some(programs), Some(splits)) = (knob(ast, "programs"), knob(ast, "split_k")) else { return };
    let persists = |value: &Setting| *value == Setting::Programs(Some(Programs::Persistent));
    let shares = |value: &Setting| matches!(value, Setting::Number(2..));
    let why = "CTAs that share a program run one each";
    let all = |values: &[Setting], is: &dyn Fn(&Setting) -> bool| !values.is_empty() && values.iter().all(is);
    if all(&programs.values, &persists) && all(&splits.values, &shares) {
        let splits = splits.values.iter().map(Setting::to_string).collect::<Vec<_>>().join(", ");
        let message = format!(
            "no config is left: `programs` is always persistent and `split_k` is {splits}, but {why}; write `programs: [single]` or `[auto]`, or `split_k: [1]`"
        );
        errors.push(23, programs.name.span(), message);
    } else if let (Some(first), Some(split)) = (programs.values.first(), splits.values.first())
        && persists(first)
        && shares(split)
    {
        let message = format!(
            "the first values are the safe default, and programs = {first} with split_k = {split} is none, for {why}; begin `programs` with another value, or `split_k` with 1"
        );
        errors.push(23, programs.name.span(), message);
    }
}

/// The knob with a name.
fn knob<'k>(ast: &'k KernelSyntax, name: &str) -> Option<&'k ast::Knob> {
    ast.tune.iter().find(|knob| knob.name == name)
}

/// Checks the order of programs against the axes of the grid.
pub(crate) fn check_order(ast: &KernelSyntax, axes: usize, errors: &mut Errors) {
    let Some(knob) = knob(ast, "order") else { return };
    let groups = |value: &&Setting| matches!(value, Setting::Order(Some(Order::Groups(_))));
    if let (Some(order), 1) = (knob.values.iter().find(groups), axes) {
        let message =
            format!("order = {order} groups the rows of a grid of two axes or more; this one has a single axis");
        errors.push(23, knob.name.span(), message);
    }
}

/// The parameters and dims of a kernel.
pub(crate) fn signature(ast: &KernelSyntax, errors: &mut Errors) -> (Vec<Param>, Vec<Dim>) {
    for (i, t) in ast.types.iter().enumerate() {
        if ast.types[..i].iter().any(|u| u.name == t.name) {
            errors.push(4, t.name.span(), format!("type parameter `{}` is declared twice", t.name));
        }
        match &t.bound {
            None => errors.push(
                22,
                t.name.span(),
                format!("type parameter `{0}` needs a bound: write `{0}: Float`", t.name),
            ),
            Some(b) if b != "Float" => {
                let hint = nearest(&b.to_string(), ["Float"]);
                errors.push(
                    22,
                    b.span(),
                    format!("unknown bound `{b}`; the bound of a type parameter is `Float` (bf16, f16, f32){hint}"),
                );
            }
            Some(_) => {}
        }
    }
    let mut dims: Vec<Dim> = Vec::new();
    let mut params: Vec<Param> = Vec::new();
    for p in &ast.params {
        if params.iter().any(|q| q.name == p.name) {
            errors.push(4, p.name.span(), format!("parameter `{}` of `{}` is declared twice", p.name, ast.name));
        }
        let (dtype, kind) = match &p.kind {
            ParamSyntaxKind::Scalar { dtype } => (dtype, ParamKind::Scalar),
            ParamSyntaxKind::Tensor { writable, dtype, dims: names } => {
                let mut indices = Vec::new();
                for name in names {
                    let known = dims.iter().position(|d| d.name == *name).unwrap_or_else(|| {
                        new_dim(ast, name, errors);
                        dims.push(Dim { name: name.clone(), whole: false });
                        dims.len() - 1
                    });
                    indices.push(known);
                }
                (dtype, ParamKind::Tensor { writable: *writable, dims: indices })
            }
        };
        // After a mistake the body is checked with the type that its message names.
        let meant = || {
            let hint = dtype_elsewhere(&dtype.to_string())?;
            DType::from_name(hint.split('`').nth(1)?)
        };
        let dtype =
            dtype_ref(Some(ast), "", dtype, errors).unwrap_or_else(|| DTypeRef::Fixed(meant().unwrap_or(DType::F32)));
        if dtype == DTypeRef::Fixed(DType::Bool) {
            let (of, x) = match kind {
                ParamKind::Scalar => ("i32", p.name.to_string()),
                ParamKind::Tensor { .. } => ("u8", "load(..).cast::<i32>()".to_owned()),
            };
            let message = format!(
                "`{}` cannot be bool: bool exists only inside kernels; make it {of}, and compare: `{x} != 0`",
                p.name
            );
            errors.push(223, p.name.span(), message);
        }
        if let (DTypeRef::Fixed(of), ParamKind::Scalar) = (dtype, &kind)
            && of.is_small()
        {
            let wide = if of.is_fp8() { "f32" } else { "i32" };
            let message = format!("`{}` is one number, and {of} is a type of tensors: write `{0}: {wide}`", p.name);
            errors.push(223, p.name.span(), message);
        }
        params.push(Param { name: p.name.clone(), dtype, kind });
    }
    for p in &params {
        shared_name(ast, &p.name, &dims, errors);
    }
    (params, dims)
}

/// Reports a parameter with the name of a dim, a tile size or a type, because a body could mean either.
fn shared_name(ast: &KernelSyntax, name: &Ident, dims: &[Dim], errors: &mut Errors) {
    let other = if dims.iter().any(|d| d.name == *name) {
        "a dim"
    } else if is_upper(name) && knob(ast, &name.to_string()).is_some() {
        "a knob"
    } else if ast.types.iter().any(|t| t.name == *name) {
        "a type parameter"
    } else {
        return;
    };
    let lower = name.to_string().to_lowercase();
    errors.push(
        4,
        name.span(),
        format!("`{name}` names a parameter and {other}; rename the parameter, as in `{lower}`"),
    );
}

fn new_dim(ast: &KernelSyntax, name: &Ident, errors: &mut Errors) {
    if let Some(k) = ast.tune.iter().find(|k| k.name == *name) {
        errors.push(4, k.name.span(), format!("`{name}` names a dim and a knob; rename the knob, as in `B{name}`"));
    }
    if ast.types.iter().any(|t| t.name == *name) {
        errors.push(4, name.span(), format!("`{name}` names a dim and a type parameter; rename one"));
    }
    if !is_upper(name) {
        let upper = name.to_string().to_uppercase();
        errors.push(27, name.span(), format!("a dim is an upper-case name: write `{upper}`"));
    }
}

/// What to write instead of an element type of another language.
fn dtype_elsewhere(name: &str) -> Option<&'static str> {
    Some(match name {
        "u32" | "uint32" | "uint" => "; `i32` has the same bits, and `shr_logical(x, n)` moves them down as unsigned",
        "u64" | "uint64" => "; `i64` has the same bits",
        "usize" | "isize" | "int" | "int32" | "index" => "; write `i32`",
        "uint8" | "byte" => "; write `u8`",
        "int8" | "char" => "; write `i8`",
        "uint16" => "; write `u16`",
        "int16" | "short" => "; write `i16`",
        "long" | "int64" => "; write `i64`",
        "float" | "float32" | "fp32" => "; write `f32`",
        "double" | "float64" | "fp64" => "; write `f64`",
        "half" | "float16" | "fp16" => "; write `f16`",
        "bfloat16" => "; write `bf16`",
        "float8_e4m3fn" | "float8e4nv" | "float8_e4m3" | "__nv_fp8_e4m3" | "fp8_e4m3" | "f8E4M3FN" | "f8e4m3fn"
        | "e4m3" | "e4m3fn" | "F8E4M3" | "float8e4m3fn" => "; write `f8e4m3`",
        "float8_e5m2" | "float8e5" | "__nv_fp8_e5m2" | "fp8_e5m2" | "f8E5M2" | "e5m2" | "F8E5M2" | "float8e5m2" => {
            "; write `f8e5m2`"
        }
        "fp8" | "f8" | "float8" => "; write `f8e4m3`, which has more digits, or `f8e5m2`, which has more range",
        "float8_e4m3fnuz" | "float8e4b8" | "float8_e5m2fnuz" | "float8e5b16" | "float8e4b15" => {
            "; the floats of 8 bits are `f8e4m3` and `f8e5m2`, whose codes mean other numbers"
        }
        _ => return None,
    })
}

/// The dtype with a name. Reports a name that is not a dtype. `place` is where there is no kernel, as in ` of a tile fn`.
pub(crate) fn dtype_ref(
    kernel: Option<&KernelSyntax>,
    place: &str,
    name: &Ident,
    errors: &mut Errors,
) -> Option<DTypeRef> {
    let types = kernel.map_or(&[][..], |k| &k.types);
    if let Some(i) = types.iter().position(|t| t.name == *name) {
        return Some(DTypeRef::Generic(i));
    }
    if let Some(d) = DType::from_name(&name.to_string()) {
        return Some(DTypeRef::Fixed(d));
    }
    let generics: Vec<String> = types.iter().map(|t| t.name.to_string()).collect();
    // Nothing is declared bool, and nothing casts to it.
    let numbers = DType::ALL.iter().filter(|d| **d != DType::Bool);
    let known: Vec<&str> = numbers.map(|d| d.name()).chain(generics.iter().map(String::as_str)).collect();
    let hint = match dtype_elsewhere(&name.to_string()) {
        Some(hint) => hint.to_owned(),
        // What looks like a type parameter is one that the kernel does not declare.
        None if kernel.is_some() && is_upper(name) && name.to_string().len() == 1 => {
            format!("; declare it with its bound: `kernel NAME<{name}: Float>(..)`")
        }
        None => nearest(&name.to_string(), known.iter().copied()),
    };
    let place = if kernel.is_none() { place } else { "" };
    errors.push(
        22,
        name.span(),
        format!("unknown element type `{name}`; the element types{place} are {}{hint}", known.join(", ")),
    );
    None
}
