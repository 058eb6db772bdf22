//! Which elements of tiles may be invalid, and which slices never reach outside.

use atlas_dsl::op::{Op, Slice};
use atlas_dsl::reach::{Reach, reach};
use atlas_dsl::validity::Validity;
use atlas_dsl::{Dim, Kernel, Value, parse_kernel, same_kernel, verify};

/// A slice of one element gives no axis, so it has no edge.
fn no_edge(k: &Kernel, slice: Slice, dim: Dim) -> bool {
    matches!(slice, Slice::At(_)) || reach(k, slice, dim) == Reach::Inside
}

fn kernel(dims: &str, body: &str) -> Kernel {
    let text = format!(
        "kernel @k(%x: f32[N, D], %y: out f32[N, D])
         dims {dims}
         grid (%n, %p) = (tiles(N, 16), N) {{
           %zero = splat 0 : i32
           %one = splat 1 : i32
           %less = splat -1 : i32
           %two = splat 2 : i32
           {body}
         }}"
    );
    parse_kernel(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Whether each load's slices can never be ragged, axis by axis.
fn full(dims: &str, body: &str) -> Vec<Vec<bool>> {
    let k = kernel(dims, body);
    let dims: Vec<_> = ["N", "D"].iter().map(|d| k.dim_by_name(d).unwrap()).collect();
    let of = |op: &Op| match op {
        Op::Load { slices, .. } => {
            Some(slices.iter().zip(&dims).map(|(&s, &d): (&Slice, _)| no_edge(&k, s, d)).collect())
        }
        _ => None,
    };
    k.insts.values().filter_map(of).collect()
}

#[test]
fn a_tile_is_full_if_it_divides_the_dim_and_its_index_counts_it() {
    for (dims, slices, want) in [
        ("N: ?16, D = 64", "%n : 16, ..", [true, true]),
        ("N: ?8, D = 64", "%n : 16, ..", [false, true]),
        ("N = 48, D = 64", "%n : 16, ..", [true, true]),
        ("N = 40, D = 64", "%n : 16, ..", [false, true]),
        // The grid counts tiles of another size, elements, or another dim.
        ("N: ?16, D = 64", "%n : 8, ..", [false, true]),
        ("N: ?16, D = 64", "%p : 16, ..", [false, true]),
        ("N: ?16, D = 64", "%p : 1, ..", [true, true]),
        ("N: ?16, D: ?16", "%p, %n : 16", [true, false]),
        // Constants, in a dim of known size alone: a dim may have size 0.
        ("N: ?16, D = 64", "%zero : 16, %one : 32", [false, true]),
        ("N: ?16, D = 64", "%zero : 16, %two : 32", [false, false]),
        ("N = 16, D = 64", "%less : 16, %less ..+ 8", [false, false]),
        ("N = 16, D = 64", "%zero ..+ 16, %one ..+ 63", [true, true]),
        ("N = 16, D = 64", "%zero ..+ 17, %one ..+ 64", [false, false]),
        ("N: ?64, D = 64", "%zero ..+ 16, %p ..+ 1", [false, false]),
        // An element makes no axis.
        ("N: ?1, D: ?1", "%two, %less", [true, true]),
    ] {
        assert_eq!(full(dims, &format!("%a = load %x[{slices}]")), [want], "{dims}: {slices}");
    }
}

#[test]
fn a_loop_index_counts_what_its_bounds_say() {
    for (dims, bounds, body, want) in [
        ("N: ?16, D: ?32", "%zero..%tiles", "%i : 32", true),
        ("N: ?16, D: ?32", "%one..%tiles", "%i : 32", true),
        ("N: ?16, D: ?32", "%less..%tiles", "%i : 32", false),
        ("N: ?16, D: ?32", "%p..%tiles", "%i : 32", false),
        ("N: ?16, D: ?16", "%zero..%tiles", "%i : 32", false),
        ("N: ?16, D: ?32", "%zero..%tiles", "%i : 16", false),
        ("N: ?16, D: ?32", "%zero..%two", "%i : 32", false),
        ("N: ?16, D = 64", "%zero..%two", "%i : 32", true),
        ("N: ?16, D = 63", "%zero..%two", "%i : 32", false),
        ("N: ?16, D: ?32", "%zero..%others", "%i : 32", false),
    ] {
        let body = format!(
            "%tiles = tiles(D, 32) %others = tiles(N, 32)
             loop %i in {bounds} {{ %a = load %x[%p, {body}] yield }}"
        );
        assert_eq!(full(dims, &body), [[true, want]], "{dims}: {bounds} {body}");
    }
}

/// The constraints of the stored value: axis, dim, and whether it applies to the whole axis.
fn stored(body: &str) -> Vec<(u8, String, bool)> {
    let k = kernel("N: ?1, D: ?1", body);
    assert!(same_kernel(&k, &parse_kernel(&k.to_string()).unwrap()), "{k}");
    let validity = Validity::of(&k);
    let value = |op: &Op| if let Op::Store { value, .. } = op { Some(*value) } else { None };
    let v: Value = k.insts.values().find_map(value).unwrap();
    validity.constraints(v).iter().map(|c| (c.axis, k.dims[c.dim].name.clone(), c.whole_axis)).collect()
}

#[test]
fn operations_pass_constraints_on() {
    let (n, d) = (|axis| (axis, "N".to_owned(), false), |axis| (axis, "D".to_owned(), false));
    let load = "%a = load %x[%n : 16, %two ..+ 8]";
    let store = "store %y[%n : 16, %two ..+ 8], %r";
    let of = |ops: &str| stored(&format!("{load} {ops} {store}"));
    assert_eq!(of("%r = exp %a"), [n(0), d(1)]);
    assert_eq!(of("%b = load %x[%n : 16, %two ..+ 8] %r = add %a, %b"), [n(0), d(1)]);
    // A constant is one, wherever it is written.
    assert_eq!(of("%c = splat 2 : i32 %b = load %x[%n : 16, %c ..+ 8] %r = add %a, %b"), [n(0), d(1)]);
    assert_eq!(of("%r = other %a, 0"), []);
    assert_eq!(of("%s = reduce sum %a axes [1] %r = broadcast %s : f32[16, 8]"), [n(0)]);
    assert_eq!(of("%s = reduce sum %a axes [0, 1] %r = broadcast %s : f32[16, 8]"), []);
    // One element that may lie outside, repeated.
    let one = "%b = load %x[%n : 16, %two ..+ 1] %r = broadcast %b : f32[16, 8]";
    assert_eq!(of(one), [n(0), (1, "D".to_owned(), true)]);
    assert_eq!(
        of(
            "%b = load %x[%n : 16, %two ..+ 1] %c = reshape %b : f32[16] %t = reshape %c : f32[16, 1] %r = broadcast %t : f32[16, 8]"
        ),
        [n(0)]
    );
    // What an axis is does not hang on its extent: a column of one element, and a row.
    let column = |axes: &str| {
        stored(&format!(
            "%b = load %x[%two ..+ 1, %p ..+ 1] %c = reshape %b{axes} : f32[1, 1] store %y[%two ..+ 1, %p ..+ 1], %c"
        ))
    };
    assert_eq!(column(""), [n(0), d(1)]);
    assert_eq!(column(" axes [0, new]"), [n(0)]);
    assert_eq!(column(" axes [1, new]"), [d(0)]);
    assert_eq!(column(" axes [new, 0]"), [n(1)]);
    assert_eq!(column(" axes [new, new]"), []);
    assert_eq!(of("%r = other %a, 0 axes [0]"), [d(1)]);
    assert_eq!(of("%r = other %a, 0 axes [1]"), [n(0)]);
    let dot = "%b = load %x[%n : 8, %n ..+ 8] %c = load %x[%n : 16, %p ..+ 8] %r = dot %c, %b";
    assert_eq!(of(dot), [n(0), d(1)]);
    assert_eq!(of("%t = transpose %a %u = transpose %t %r = neg %u"), [n(0), d(1)]);
    let carried = "%z = splat 0 : f32[16, 8] %r = loop %i in %zero..%two carry (%c = %z) { %s = add %c, %a yield %s }";
    assert_eq!(of(carried), [n(0), d(1)]);
}

/// A kernel that stores to the place that it loads from, with the place computed twice; the second formula ends with `last`.
fn copied_to_a_place(deep: usize, last: &str) -> Kernel {
    let formula = |name: &str, last: &str| {
        let steps = (0..deep).map(|i| {
            let from = if i == 0 { "%at".to_owned() } else { format!("%{name}{}", i - 1) };
            // Each step has the one before twice.
            format!("%{name}{i} = add {from}, {from} ")
        });
        let steps: String = steps.collect();
        format!("{steps} %{name} = {last} %{name}{}, %two ", deep - 1)
    };
    let text = format!(
        "kernel @k(%x: f32[N], %y: out f32[G, N], %at: i32)
         dims N: ?1, G: ?1
         grid (%g) = (G) {{
           %two = splat 2 : i32
           %at = scalar %at : i32
           {} {} %v = load %x[%a ..+ 4] store %y[%g, %b ..+ 4], %v
         }}",
        formula("a", "mul"),
        formula("b", last)
    );
    parse_kernel(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn formulas_are_the_same_however_deep_they_are() {
    for deep in [1, 9, 17, 300, 20_000] {
        assert!(verify(copied_to_a_place(deep, "mul")).is_ok(), "{deep}");
        let why = verify(copied_to_a_place(deep, "add")).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(why.contains("ATL227") && why.contains("a `let`"), "{deep}: {why}");
    }
}
