//! Simplification of Tile IR: a case for each rule, and random kernels with the same results before and after.

use crate::command::prints;
use crate::kernels::Bits;
use atlas_dsl::ir::{Access, DimSize, ParamKind};
use atlas_dsl::op::BinaryOp;
use atlas_dsl::rewrite::{Applied, RULES, Rewrite, RewriteRule, rewrite, simplify};
use atlas_dsl::rounding::{to_bf16, to_f16};
use atlas_dsl::{DType, Kernel, Op, Verified, parse_kernel, verify};
use atlas_tile_interp::{Arg, Mode, Scalar, TensorView, TensorViewMut, run};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The number of random kernels.
const COUNT: u64 = 600;

fn cases() -> Vec<(String, PathBuf, String)> {
    let folder = Path::new(crate::ROOT).join("tests/cases/rewrite");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    files.sort();
    let named = |path: PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        (name, path, text)
    };
    files.into_iter().map(named).collect()
}

fn parsed(text: &str) -> Verified<Kernel> {
    parse_kernel(text).and_then(verify).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// A simplified kernel, which must be as well formed as before.
fn simplified(kernel: &Verified<Kernel>, rules: Option<&[RewriteRule]>) -> (Result<Verified<Kernel>, String>, Applied) {
    let mut after = (**kernel).clone();
    let applied = match rules {
        Some(rules) => rewrite(&mut after, rules),
        None => simplify(&mut after),
    };
    let text = after.to_string();
    (verify(after).map_err(|e| format!("{e}\n{text}")), applied)
}

/// Random bits of an element: numbers of all sizes, and special values of arithmetic.
fn element(bits: &mut Bits, dtype: DType) -> u64 {
    let draw = bits.next();
    if dtype.is_int() {
        return (draw % 17).wrapping_sub(8);
    }
    if dtype.is_small() {
        return draw & ((1 << (8 * dtype.bytes())) - 1);
    }
    let special = [0.0, -0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, -f64::INFINITY, 1e-40, 65504.0, 0.5];
    let x = match draw % 4 {
        0 => special[(draw >> 8) as usize % special.len()],
        _ => (draw >> 11) as f64 / (1u64 << 53) as f64 * 6.0 - 3.0,
    };
    match dtype {
        DType::F64 => x.to_bits(),
        DType::F16 => to_f16(x).to_bits().into(),
        DType::Bf16 => to_bf16(x).to_bits().into(),
        _ => (x as f32).to_bits().into(),
    }
}

/// The content of a kernel's tensors after a run. All NaNs are equal.
fn run_on(kernel: &Verified<Kernel>, sizes: &dyn Fn(&str) -> u64, seed: u64) -> Vec<Vec<u64>> {
    let dims: Vec<u64> = kernel
        .dims
        .values()
        .map(|d| match d.size {
            DimSize::Const(n) => n,
            DimSize::Dynamic { .. } => sizes(&d.name),
        })
        .collect();
    let mut bits = Bits(seed);
    let mut tensors: Vec<Vec<u8>> = Vec::new();
    for param in kernel.params.values() {
        let ParamKind::Tensor { dtype, dims: of, .. } = &param.kind else {
            tensors.push(Vec::new());
            continue;
        };
        let len: u64 = of.iter().map(|d| dims[d.as_u32() as usize]).product();
        let width = dtype.bytes() as usize;
        tensors.push((0..len).flat_map(|_| element(&mut bits, *dtype).to_le_bytes()[..width].to_vec()).collect());
    }
    let mut args = Vec::new();
    for (param, bytes) in kernel.params.values().zip(&mut tensors) {
        args.push(match &param.kind {
            ParamKind::Scalar { dtype } if dtype.is_int() => Arg::Scalar(Scalar::I32((bits.next() % 5) as i32)),
            ParamKind::Scalar { .. } => Arg::Scalar(Scalar::F32((bits.next() % 9) as f32 / 4.0 - 1.0)),
            ParamKind::Tensor { dtype, dims: of, access, .. } => {
                let dims: Vec<u64> = of.iter().map(|d| dims[d.as_u32() as usize]).collect();
                match access {
                    Access::In => Arg::In(TensorView::contiguous(*dtype, bytes, &dims).unwrap()),
                    Access::Out => Arg::Out(TensorViewMut::contiguous(*dtype, bytes, &dims).unwrap()),
                }
            }
        });
    }
    run(kernel, &dims, args, Mode::Native).unwrap_or_else(|e| panic!("{}: {e}\n{}", kernel.name, **kernel));
    let of = |(param, bytes): (&ParamKind, &Vec<u8>)| match param {
        ParamKind::Scalar { .. } => Vec::new(),
        ParamKind::Tensor { dtype, .. } => {
            let whole = bytes.chunks_exact(dtype.bytes() as usize);
            whole.map(|x| one_nan(*dtype, x.iter().rev().fold(0, |a, &b| a << 8 | u64::from(b)))).collect()
        }
    };
    kernel.params.values().map(|p| &p.kind).zip(&tensors).map(of).collect()
}

fn one_nan(dtype: DType, bits: u64) -> u64 {
    let is_nan = match dtype {
        DType::F16 => half::f16::from_bits(bits as u16).is_nan(),
        DType::Bf16 => half::bf16::from_bits(bits as u16).is_nan(),
        DType::F32 => f32::from_bits(bits as u32).is_nan(),
        DType::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    };
    if is_nan { u64::MAX } else { bits }
}

/// The text of a random kernel, and the sizes that it begins with.
type Drawn = (String, Vec<(String, u64)>);

/// Random kernels. They are made once for all rules.
static RANDOM: LazyLock<Vec<Drawn>> = LazyLock::new(|| {
    let all = prints(&["fuzz", "--seed", "31", "--count", &COUNT.to_string(), "--list"]);
    let sized = |text: &str| {
        let head = text.split(';').next().unwrap_or_default();
        let sizes = head.split(' ').filter_map(|p| p.split_once('=')).map(|(n, x)| (n.to_owned(), x.parse().unwrap()));
        (format!("// dims {text}"), sizes.collect())
    };
    all.split("// dims ").skip(1).map(sized).collect()
});

/// The first kernel that some rules change, if any, and the rules applied to all kernels.
fn first_changed(rules: Option<&[RewriteRule]>) -> (Option<String>, Applied) {
    let mut all = Applied::new();
    let cases =
        cases().into_iter().map(|(_, _, text)| (text.split("---").next().unwrap_or_default().to_owned(), Vec::new()));
    for (i, (text, sizes)) in cases.chain(RANDOM.iter().cloned()).enumerate() {
        let before = parsed(&text);
        let (after, applied) = simplified(&before, rules);
        applied.into_iter().for_each(|(rule, n)| *all.entry(rule).or_default() += n);
        let after = match after {
            Ok(after) => after,
            Err(e) => return (Some(format!("{e}\nof\n{text}")), all),
        };
        let of = |name: &str| sizes.iter().find(|s| s.0 == name).map_or(7, |s| s.1);
        for seed in [i as u64 * 2 + 1, i as u64 * 2 + 2] {
            let (was, is) = (run_on(&before, &of, seed), run_on(&after, &of, seed));
            if was != is {
                return (Some(format!("{text}\nbecame\n{}", *after)), all);
            }
        }
    }
    (None, all)
}

#[test]
fn each_rule_does_what_its_case_says() {
    let bless = std::env::var_os("ATLAS_BLESS").is_some();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for (name, path, text) in cases() {
        let (before, wanted) = text.split_once("---\n").unwrap_or_else(|| panic!("no `---` in {name}"));
        let (after, applied) = simplified(&parsed(before), None);
        let after = after.unwrap_or_else(|e| panic!("{name}: {e}")).to_string();
        if !applied.contains_key(&*name) {
            wrong.push(format!("{name} was not applied, but {applied:?}"));
        }
        if bless {
            std::fs::write(&path, format!("{before}---\n{after}")).unwrap();
        } else if after != wanted {
            wrong.push(format!("{name}:\n{after}"));
        }
        seen.insert(name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let rules = RULES.iter().map(|r| r.name).chain(["again", "unused"]);
    let missing: Vec<&str> = rules.filter(|&r| !seen.contains(r)).collect();
    assert!(missing.is_empty(), "rules without a case: {missing:?}");
}

#[test]
fn random_kernels_stay_the_same() {
    let (changed, applied) = first_changed(None);
    assert!(changed.is_none(), "{}", changed.unwrap_or_default());
    // Kernels to which no rule applies test nothing.
    assert!(applied.values().sum::<usize>() > COUNT as usize, "{applied:?}");
}

fn operation(kernel: &Kernel, inst: atlas_dsl::entity::Inst) -> &Op {
    &kernel.insts[inst]
}

#[test]
fn wrong_rules_are_noticed() {
    let wrong: [RewriteRule; 5] = [
        RewriteRule {
            name: "add_zero",
            algebra: "x + 0.0 = x",
            apply: |kernel, _, inst| match *operation(kernel, inst) {
                Op::Binary(BinaryOp::Add, a, b) => match kernel.def_op(b)?.1 {
                    Op::Splat { value: 0.0, .. } => Some(Rewrite::Same(vec![(kernel.results[inst][0], a)])),
                    _ => None,
                },
                _ => None,
            },
        },
        RewriteRule {
            name: "cast_back_always",
            algebra: "cast<T>(cast<W>(x: T)) = x",
            apply: |kernel, _, inst| match *operation(kernel, inst) {
                Op::Cast(to, wide) => match *kernel.def_op(wide)?.1 {
                    Op::Cast(_, x) if kernel.ty(x).dtype == to => {
                        Some(Rewrite::Same(vec![(kernel.results[inst][0], x)]))
                    }
                    _ => None,
                },
                _ => None,
            },
        },
        RewriteRule {
            name: "max_is_first",
            algebra: "max(a, b) = a",
            apply: |kernel, _, inst| match *operation(kernel, inst) {
                Op::Binary(BinaryOp::Max, a, _) => Some(Rewrite::Same(vec![(kernel.results[inst][0], a)])),
                _ => None,
            },
        },
        RewriteRule {
            name: "turned_about",
            algebra: "a - b = b - a",
            apply: |kernel, _, inst| match *operation(kernel, inst) {
                Op::Binary(BinaryOp::Sub, a, b) if a > b => Some(Rewrite::Op(Op::Binary(BinaryOp::Sub, b, a))),
                _ => None,
            },
        },
        RewriteRule {
            name: "no_refill",
            algebra: "x.or(c) = x",
            apply: |kernel, _, inst| match *operation(kernel, inst) {
                Op::Other { value, .. } => {
                    let axes = (0..kernel.ty(value).rank() as u8).map(Some).collect();
                    Some(Rewrite::Op(Op::Reshape { value, axes }))
                }
                _ => None,
            },
        },
    ];
    for rule in &wrong {
        let (changed, applied) = first_changed(Some(std::slice::from_ref(rule)));
        assert!(changed.is_some(), "{} is not noticed: {applied:?}", rule.name);
    }
}

const ONE_ELEMENT: &str = "kernel @k(%x: f32[N], %y: out f32[N], %z: out f32[N])
dims N: ?1
grid (%n) = (N) {
  %one = splat 1 : i32[]
  %s = sub %n, %one
  %t = load %x[%s ..+ 1] : f32[1]
  BODY
}";

/// Zeros of both signs past the edge, and edges that a reshape hides.
#[test]
fn what_stands_past_an_edge_stays() {
    for body in [
        "%a = other %t, 0.0 %b = other %t, -0.0 %c = reshape %a : f32[] %d = reshape %b : f32[] store %y[%n], %c store %z[%n], %d",
        "%f = splat 1.0 : f32[] %o = other %t, 1.0 %a = reshape %t : f32[1, 1] %b = reshape %o : f32[] store %y[%n], %b
         %c = reshape %a : f32[1] %d = other %c, 2.0 %e = reshape %d : f32[] store %z[%n], %e",
    ] {
        let text = ONE_ELEMENT.replace("BODY", body);
        let kernel = parsed(&text);
        let (after, _) = simplified(&kernel, None);
        let after = after.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(run_on(&kernel, &|_| 5, 1), run_on(&after, &|_| 5, 1), "{text}");
    }
    // If it is stored after one or two reshapes, the edge is visible.
    for body in ["%b = reshape %t : f32[]", "%a = reshape %t : f32[1, 1] %b = reshape %a : f32[]"] {
        let text = ONE_ELEMENT.replace("BODY", &format!("{body} store %y[%n], %b store %z[%n], %b"));
        let said = parse_kernel(&text).and_then(verify).expect_err("the edge shows").to_string();
        assert!(said.contains("ATL227"), "{said}");
    }
}

#[test]
fn long_and_deep_kernels_end() {
    // A chain of operations, and a repeated one.
    let mut body = String::from("%a0 = other %t, 1.0 %b0 = other %t, 1.0");
    for i in 0..20_000 {
        let j = i + 1;
        body += &format!("\n%a{j} = add %a{i}, %a0\n%b{j} = add %b{i}, %b0");
    }
    body += "\n%p = reshape %a20000 : f32[] %q = reshape %b20000 : f32[] store %y[%n], %p store %z[%n], %q";
    let mut kernel = (*parsed(&ONE_ELEMENT.replace("BODY", &body))).clone();
    let applied = simplify(&mut kernel);
    assert!(applied["again"] > 20_000, "{applied:?}");
    // Nested loops, each of which carries the load of the innermost one.
    let mut loops = String::from("yield %t");
    for i in 0..40 {
        let inner = format!("%r{i} = loop %i{i} in %zero..%one carry (%c{i} = %f) {{ {loops} }}");
        loops = format!("{inner} yield %r{i}");
    }
    let body = format!(
        "%zero = splat 0 : i32[] %f = splat 0.0 : f32[1] {} store %y[%n], 0.0",
        loops.replace(" yield %r39", "")
    );
    let body = body
        .replace("store %y[%n], 0.0", "%o = other %r39, 0.0 %v = reshape %o : f32[] store %y[%n], %v store %z[%n], %v");
    let text = ONE_ELEMENT.replace("BODY", &body);
    let mut kernel = parse_kernel(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    simplify(&mut kernel);
    assert!(verify(kernel).is_ok());
}
