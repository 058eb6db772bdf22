//! Kernels written by a user's macro, and kernels in crates that have Atlas through another crate.
#![forbid(unsafe_code)]
#![deny(deprecated)]

use atlas_dsl::op::Op;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, DType, Kernel, KernelDef, Specialization, registry};

/// As a crate that re-exports Atlas has it.
mod gpu {
    pub(crate) use atlas_dsl as atlas;
    pub(crate) use atlas_macros::{atlas_kernel, fuse};

    /// What such a crate offers, so that its users name nothing.
    macro_rules! kernels {
        ($($item:tt)*) => { $crate::gpu::atlas_kernel! { #![crate = $crate::gpu::atlas] $($item)* } };
    }
    pub(crate) use kernels;
}

fn built(def: &'static KernelDef, tiles: &[(&str, u32)]) -> Kernel {
    let mut config = Config::default();
    config.tile.extend(tiles.iter().map(|&(name, size)| (name.to_owned(), size)));
    let spec = def.dims.iter().fold(Specialization::default(), |s, d| s.with_dim(d.name, DimFact::Const(64)));
    (def.build)(&spec, &config).unwrap_or_else(|e| panic!("{}: {e}", def.name))
}

macro_rules! through {
    (
        $(#[$meta:meta])* $vis:vis $name:ident, $t:ty, $acc:ty, $ident:ident, [$($dim:ident),*], $knob:ident: $values:tt,
        $scale:literal, $negative:literal, $size:expr, $factor:expr, $tile:expr, $function:path, $place:expr, $axis:literal,
        $stages:literal, $bounds:expr, $grid:expr, $body:block, $condition:expr
    ) => {
        gpu::atlas_kernel! {
            #![crate = atlas_dsl]
            tile fn $ident(z) { $scale * z + $negative }
            $(#[$meta])*
            $vis kernel $name(x: &Tensor<$t, [$($dim),*]>, s: $acc, y: &mut Tensor<$acc, [$($dim),*]>)
            tune { $knob: $values, stages: [$stages] }
            require { $condition }
            {
                for n in grid(tiles(N, $knob)) {
                    let xs = load(x[n, ..]);
                    let mut acc = zeros::<$acc>([$knob, $size]);
                    for _ in $bounds {
                        $place += $ident($tile.cast::<$acc>()) * $factor;
                        acc = $function(acc) + grad($ident)(acc) + full::<$acc>([$knob, $size], $negative);
                    }
                    let total = sum(acc, axis = $axis) * s;
                    store(y[n, ..], broadcast(total, [$knob, D]));
                }
            }
        }
        gpu::atlas_kernel! {
            #![crate = atlas_dsl]
            kernel whole(y: &mut Tensor<$acc, [N]>) $body
        }
        gpu::atlas_kernel! {
            #![crate = atlas_dsl]
            kernel gridded(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
                for n in $grid { store(y[n], load(x[n])); }
            }
        }
    };
}

through! {
    /// Documented through a macro.
    pub(crate) made, f16, f32, scale, [N, D], BN: [32, 64], 0.5, -1.5, 2 * 32, (1.0 + 2.0), xs * 1.0, exp, acc, 1,
    2, 0..2 + 1, grid(tiles(N, 32)), { for n in grid(tiles(N, 16)) { store(y[n], 1.0); } }, N % 2 == 0
}

/// Statements, types and pairs of loads that a macro of the user's is given.
macro_rules! pieces {
    ($name:ident, $x:ident, $y:ident, $n:ident, $t:ty; $($s:stmt;)*) => {
        gpu::atlas_kernel! {
            #![crate = atlas_dsl]
            kernel $name($x: &Tensor<$t, [N]>, $y: &mut Tensor<$t, [N]>) {
                for $n in grid(tiles(N, 16)) {
                    $($s;)*
                    store($y[$n], min(a, <$t>::MAX) + <Seven as Numbers>::K + <Seven as Numbers>::TABLE[1].cast::<$t>());
                }
            }
        }
    };
}

struct Seven;
trait Numbers {
    const K: u8;
    const TABLE: [f32; 2];
}
impl Numbers for Seven {
    const K: u8 = 7;
    const TABLE: [f32; 2] = [1.0, 9.0];
}

pieces!(of_floats, x, y, n, f32; let mut a = load(x[n]); let b = a * 2.0; a += b; for i in 0..3 { a += i.cast::<f32>() };);
pieces!(of_whole, x, y, n, i32; let mut a = load(x[n]); let b = a; ;; a += b;);

gpu::atlas_kernel! {
    #![crate = atlas_dsl]
    tile fn with_empty_statements(x) { let y = x + 1.0;; ; y }
    kernel empty_statements(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { ; let mut a = load(x[n]);; for _ in 0..2 { a = with_empty_statements(a);; }; store(y[n], a);; };
    }
}

gpu::kernels! {
    tile fn twice(x) { x + x }
    kernel renamed(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 32)) { store(y[n], twice(load(x[n]))); }
    }
}

gpu::fuse! {
    #![crate = crate::gpu::atlas]
    kernel both = renamed >> renamed;
}

gpu::fuse! {
    #![crate = atlas_dsl]
    #[deprecated]
    kernel older = renamed >> renamed;
}

gpu::atlas_kernel! {
    /// Its own registration does not warn.
    #[deprecated(note = "use `renamed`")]
    pub kernel old(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 32)) { store(y[n], load(x[n])); }
    }
}

#[test]
fn a_macro_of_the_users_writes_kernels() {
    let k = built(&made, &[("BN", 32)]);
    assert_eq!(made.doc, "Documented through a macro.");
    assert!(k.insts.values().any(|op| matches!(op, Op::Cast(DType::F32, _))));
    assert!(k.insts.values().any(|op| matches!(op, Op::Splat { value, .. } if *value == -1.5)));
    built(&whole, &[]);
    built(&gridded, &[]);
}

#[test]
fn pieces_of_a_macro_keep_what_they_are() {
    let numbers = |def| {
        let k = built(def, &[]);
        let number = |op: &Op| if let Op::Splat { value, .. } = op { Some(*value) } else { None };
        let found: Vec<f64> = k.insts.values().filter_map(number).collect();
        assert_eq!(k.tables.values().map(|t| &t.values[..]).collect::<Vec<_>>(), [[1.0, 9.0]]);
        found
    };
    let found = numbers(&of_floats);
    assert!(found.contains(&f64::from(f32::MAX)) && found.contains(&7.0), "{found:?}");
    let found = numbers(&of_whole);
    assert!(found.contains(&f64::from(i32::MAX)) && found.contains(&7.0), "{found:?}");
    let k = built(&empty_statements, &[]);
    assert_eq!(k.insts.values().filter(|op| matches!(op, Op::Store { .. })).count(), 1);
}

#[test]
fn a_crate_has_atlas_through_another_one() {
    built(&renamed, &[]);
    let names: Vec<&str> = registry().iter().map(|k| k.name).collect();
    assert!(["renamed", "both", "old", "older"].iter().all(|n| names.contains(n)), "{names:?}");
}
