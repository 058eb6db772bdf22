//! The verifier: every code has a kernel that breaks its rule and no other.

use atlas_dsl::ir::{BlockData, DimData, DimSize, GridExtent, Loc, ParamKind};
use atlas_dsl::op::{LoopKind, Op};
use atlas_dsl::verify::Invariants;
use atlas_dsl::{Block, DType, Dim, Inst, Kernel, Param, Table, TileType, Value, parse_kernel, verify};
use std::collections::BTreeSet;

/// A kernel in text with one rule broken: the code, part of the message, statements in the place of
/// the store, and replacements in the text around them.
type TextCase = (u16, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const FRAME: &str = "kernel @k(%x: f32[N, D], %y: out f32[N, D])
dims N: ?16, D = 64
table @T: f32[2] = [1, 2]
grid (%n) = (tiles(N, 16)) {
  %t = load %x[%n : 16, ..]
  %zero = splat 0 : i32
  %two = splat 2 : i32
  BODY
}
";
const STORE: &str = "store %y[%n : 16, ..], %t";

/// The programs of the grid are a cluster.
const IN_CLUSTERS: &[(&str, &str)] = &[
    ("N: ?16", "N = 64"),
    (") {", ") cluster {"),
    ("%t = load %x[%n : 16, ..]", "%l = load %x[%n : 16, ..] %t = other %l, 0.0 axes [0]"),
];

const TEXT_CASES: &[TextCase] = &[
    (229, "the grid has no cluster", "%s = cluster_sum %t store %y[%n : 16, ..], %s", &[]),
    (229, "which must be a constant", STORE, &[(") {", ") cluster {")]),
    (
        229,
        "not of pairs",
        "store %y[%n : 16, %m : 16], %u",
        &[
            ("grid (%n) = (tiles(N, 16)) {", "grid (%n, %m) = (tiles(N, 16), upto(N, 16)) cluster {"),
            ("[%n : 16, ..]", "[%n : 16, %m : 16]"),
            ("%t = load", "%u = load"),
            ("N: ?16, D = 64", "N = 64"),
            ("f32[N, D], %y: out f32[N, D]", "f32[N, N], %y: out f32[N, N]"),
        ],
    ),
    (
        233,
        "equally often",
        "%u = loop %i in %zero..%n carry (%c = %t) { %s = cluster_sum %c yield %s } store %y[%n : 16, ..], %t",
        IN_CLUSTERS,
    ),
    (
        234,
        "add up different elements: those of one program may lie outside of `N`",
        "%s = cluster_sum %l store %y[%n : 16, ..], %t",
        IN_CLUSTERS,
    ),
    // A store may leave the cluster's coordinate out where all programs store the same: not what they loaded, nor in a loop that some
    // run less often, nor beside a store that has the coordinate.
    (
        213,
        "along `tiles(N, 16)` store different values to the same elements of `y`: what they store comes from a load of `x`",
        "store %y[%zero : 16, ..], %t",
        IN_CLUSTERS,
    ),
    (
        213,
        "different values to the same elements of `y`: what they store is computed from the coordinate",
        "%o = cast %n : f32 %p = broadcast %o : f32[16, 64] store %y[%zero : 16, ..], %p",
        IN_CLUSTERS,
    ),
    (
        213,
        "to places of `y` that may overlap",
        "%s = cluster_sum %t %m = add %n, %n store %y[%m : 16, ..], %s",
        IN_CLUSTERS,
    ),
    (
        213,
        "not all programs of the cluster come to this store to `y` equally often",
        "%s = cluster_sum %t loop %i in %zero..%n { store %y[%zero : 16, ..], %s yield }",
        IN_CLUSTERS,
    ),
    (
        213,
        "different values to the same elements of `y`: what they store comes from a load of `x`",
        "%s = cluster_sum %t %u = loop %i in %zero..%two carry (%c = %s) { %d = add %c, %t yield %d } \
         store %y[%zero : 16, ..], %u",
        IN_CLUSTERS,
    ),
    (
        214,
        "has the coordinate of the cluster, and another one has not",
        "%s = cluster_sum %t store %y[%zero : 16, ..], %s store %y[%n : 16, ..], %t",
        IN_CLUSTERS,
    ),
    (
        211,
        "stored to without the coordinate of the cluster",
        "%s = cluster_sum %t store %y[%zero : 16, ..], %s %v = load %y[%zero : 16, ..]",
        IN_CLUSTERS,
    ),
    (
        204,
        "is not defined at this place",
        "loop %i in %zero..%two { %u = exp %t yield } store %y[%n : 16, ..], %u",
        &[],
    ),
    (
        204,
        "is not defined at this place",
        "loop %i in %zero..%two { yield } %j = add %i, %zero store %y[%n : 16, ..], %t",
        &[],
    ),
    (206, "does not end in `yield`", "loop %i in %zero..%two { } store %y[%n : 16, ..], %t", &[]),
    (
        207,
        "carries 1 values, but `yield` gives 0",
        "%u = loop %i in %zero..%two carry (%c = %t) { yield } store %y[%n : 16, ..], %u",
        &[],
    ),
    (
        207,
        "is f32[16, 64], but `yield` gives i32",
        "%u = loop %i in %zero..%two carry (%c = %t) { yield %i } store %y[%n : 16, ..], %u",
        &[],
    ),
    (208, "in the kernel's body", "store %y[%n : 16, ..], %t yield", &[]),
    (208, "before the end", "loop %i in %zero..%two { yield yield } store %y[%n : 16, ..], %t", &[]),
    (210, "`x` is stored to, but is not `out`", "store %x[%n : 16, ..], %t store %y[%n : 16, ..], %t", &[]),
    (
        211,
        "on axis 0, but this load has another index there",
        "%u = load %y[%two : 16, ..] store %y[%n : 16, ..], %t",
        &[],
    ),
    (211, "on axis 0, but this load has another index there", "%u = load %y[%n, ..] store %y[%n : 16, ..], %t", &[]),
    (
        211,
        "on axis 0, but this load has another index there",
        "%u = load %y[%n ..+ 16, ..] store %y[%n : 16, ..], %t",
        &[],
    ),
    (212, "`y` is `out`, but never stored to", "", &[]),
    (213, "coordinate of `tiles(N, 16)`", "store %y[%two : 16, ..], %t", &[]),
    (213, "coordinate of `tiles(N, 16)`", "store %y[%n ..+ 16, ..], %t", &[]),
    (213, "coordinate of `D`", STORE, &[("grid (%n) = (", "grid (%d, %n) = (D, ")]),
    (
        214,
        "in another slice than the store before",
        "%r = load %x[%n, ..] store %y[%n, ..], %r store %y[%n : 16, ..], %t",
        &[],
    ),
    (215, "two parameters are called `x`", STORE, &[("%y: out", "%x: f32, %y: out")]),
    (215, "two dims are called `N`", STORE, &[("D = 64", "D = 64, N: ?1")]),
    (215, "two tables are called `T`", STORE, &[("grid", "table @T: f32[1] = [0] grid")]),
    (216, "the parameter name `1` is not a word", STORE, &[("%y: out", "%1: f32, %y: out")]),
    (
        217,
        "the grid has no axis",
        "store %y[%two : 16, ..], %t",
        &[("(%n) = (tiles(N, 16))", "() = ()"), ("%t = load %x[%n : 16, ..]", "%t = splat 0 : f32[16, 64]")],
    ),
    (218, "dim `N` has divisor 0", STORE, &[("?16", "?0"), ("out f32[N, D]", "out f32[N, D] strides [64, 1]")]),
    (218, "dim `E` has no elements", STORE, &[("D = 64", "D = 64, E = 0")]),
    (218, "the stride of `x` along `N` has divisor 0", STORE, &[("%x: f32[N, D]", "%x: f32[N, D] strides [?0, 1]")]),
    (219, "table `T` of extents [2] has 3 values", STORE, &[("[1, 2]", "[1, 2, 3]")]),
    (219, "table `T` of extents [0] has 0 values", STORE, &[("f32[2] = [1, 2]", "f32[0] = []")]),
    (220, "has an extent of 0", "%u = splat 0 : f32[0, 4] store %y[%n : 16, ..], %t", &[]),
    (220, "tiles of 0 elements of `N`", "%u = tiles(N, 0) store %y[%n : 16, ..], %t", &[]),
    (
        220,
        "the grid has tiles of 0 elements of `D`",
        "store %y[%n : 16, %d], %r",
        &[
            ("grid (%n) = (", "grid (%d, %n) = (tiles(D, 0), "),
            ("[%n : 16, ..]\n", "[%n : 16, ..] %r = splat 0 : f32[16]\n"),
        ],
    ),
    (221, "more than 1048576 elements", "%u = splat 0 : f32[1025, 1024] store %y[%n : 16, ..], %t", &[]),
    (
        221,
        "more than 1048576 elements",
        "%u = splat 0 : f32[4294967295, 4294967295, 4294967295] store %y[%n : 16, ..], %t",
        &[],
    ),
    (
        222,
        "counts tiles of 16 elements of `N`, but `x` is sliced in tiles of 8",
        "%u = load %x[%n : 8, ..] store %y[%n : 16, ..], %t",
        &[],
    ),
    (223, "parameter `b` is bool", STORE, &[("%y: out", "%b: bool, %y: out")]),
    (
        224,
        "`x` has rank 2, but the number of its strides is 1",
        STORE,
        &[("%x: f32[N, D]", "%x: f32[N, D] strides [1]")],
    ),
    (224, "`y` is written, but has stride 0 along `N`", STORE, &[("out f32[N, D]", "out f32[N, D] strides [0, 1]")]),
    // Addresses are computed in 64 bits.
    (
        224,
        "`x` has stride 9223372036854775807 along `N`; no tensor has one of more than 1099511627776",
        STORE,
        &[("%x: f32[N, D]", "%x: f32[N, D] strides [9223372036854775807, 1]")],
    ),
    (
        224,
        "`x` has stride -1099511627777 along `D`",
        STORE,
        &[("%x: f32[N, D]", "%x: f32[N, D] strides [1, -1099511627777]")],
    ),
    (225, "`x` has alignment 12", STORE, &[("%x: f32[N, D]", "%x: f32[N, D] align 12")]),
    (225, "`x` has alignment 2", STORE, &[("%x: f32[N, D]", "%x: f32[N, D] align 2")]),
    (
        226,
        "carries out what it computes from this tile of `x`, of 16 elements of `N`",
        "%u = loop %i in %zero..%two carry (%c = %t) { %v = load %x[%i : 16, ..] yield %v } store %y[%n : 16, ..], %u",
        &[],
    ),
    (
        226,
        "from this span of `x`, of 16 elements of `N`",
        "%u = loop %i in %zero..%two carry (%c = %t) {
           %a = add %i, %two %v = load %x[%a ..+ 16, ..] %e = exp %v %w = add %c, %e yield %w
         } store %y[%n : 16, ..], %u",
        &[],
    ),
    // Whatever the size of D is: its tiles of 32 all lie inside.
    (
        226,
        "from this tile of `x`, of 32 elements of `D`",
        "%z = splat 0 : f32[16, 32]
         %u = loop %i in %zero..%two carry (%c = %z) { %v = load %x[%n : 16, %i : 32] yield %v }
         %s = reduce sum %u axes [1] %b = broadcast %s : f32[16, 64] store %y[%n : 16, ..], %b",
        &[],
    ),
    (
        227,
        "this span of `x`, of 16 elements of `N`, may reach outside",
        "%a = add %n, %two %u = load %x[%a ..+ 16, ..] store %y[%n : 16, ..], %u",
        &[],
    ),
    // The column that is repeated may lie outside.
    (
        227,
        "this span of `x`, of 1 elements of `D`",
        "%u = load %x[%n : 16, %n ..+ 1] %v = broadcast %u : f32[16, 64] store %y[%n : 16, ..], %v",
        &[],
    ),
    // What is one row of the tensor becomes a column of the other.
    (
        227,
        "this tile of `x`, of 16 elements of `N`",
        "%u = load %x[%n : 16, %zero ..+ 16] %v = transpose %u store %y[%n : 16, %two ..+ 16], %v",
        &[],
    ),
    (
        227,
        "this span of `x`, of 1 elements of `D`",
        "%u = load %x[%n : 16, %n ..+ 1] %v = reshape %u : f32[16] store %y[%n : 16, %two], %v",
        &[],
    ),
];

fn case_text((_, _, body, replacements): &TextCase) -> String {
    let mut text = FRAME.replace("BODY", body);
    for (from, to) in *replacements {
        assert!(text.contains(from), "{from} is not in\n{text}");
        text = text.replacen(from, to, 1);
    }
    text
}

fn base() -> Kernel {
    parse_kernel(&FRAME.replace("BODY", STORE)).unwrap()
}

fn scalar() -> TileType {
    TileType::scalar(DType::I32)
}

/// A kernel with one rule broken that has no text: the code, part of the message, and the change.
type DirectCase = (u16, &'static str, fn(&mut Kernel));

const DIRECT_CASES: &[DirectCase] = &[
    (104, "`sqrt` does not apply to i32", |k| {
        let v = k.grid[0].coord;
        push(k, Op::Unary(atlas_dsl::op::UnaryOp::Sqrt, v), &[scalar()]);
    }),
    (201, "there is no value v99", |k| push(k, Op::Cast(DType::F32, Value::from_u32(99)), &[scalar()])),
    (201, "there is no dim d99", |k| push(k, Op::DimSize(Dim::from_u32(99)), &[scalar()])),
    (201, "there is no parameter p99", |k| push(k, Op::ScalarParam(Param::from_u32(99)), &[scalar()])),
    (201, "there is no table tab99", |k| {
        push(k, Op::TableGet { table: Table::from_u32(99), indices: vec![] }, &[scalar()])
    }),
    (201, "there is no instruction inst99", |k| k.blocks[k.body].insts.push(Inst::from_u32(99))),
    (201, "there is no block bb99", |k| push_loop(k, Block::from_u32(99))),
    (201, "there is no dim d98", |k| {
        if let ParamKind::Tensor { dims, .. } = &mut k.params[Param::from_u32(0)].kind {
            dims[0] = Dim::from_u32(98);
        }
    }),
    (202, "but its data says Grid(0)", |k| {
        let v = k.values.push(k.values[k.grid[0].coord].clone());
        let inst = k.insts.push(Op::DimSize(Dim::from_u32(0)));
        k.results[inst] = vec![v];
        k.blocks[k.body].insts.push(inst);
    }),
    (203, "gives i32, but its results are f32", |k| {
        push(k, Op::DimSize(Dim::from_u32(0)), &[TileType::scalar(DType::F32)])
    }),
    (203, "gives i32, but its results are nothing", |k| push(k, Op::DimSize(Dim::from_u32(0)), &[])),
    (204, "is not defined at this place", |k| {
        // The first instruction reads the last one's result.
        let inst = k.push_inst(k.body, Op::DimSize(Dim::from_u32(0)), &[scalar()], Loc::default());
        let late = k.results[inst][0];
        push(k, Op::Cast(DType::F32, late), &[TileType::scalar(DType::F32)]);
        let insts = &mut k.blocks[k.body].insts;
        let early = insts.pop().unwrap();
        insts.insert(0, early);
    }),
    (205, "is the body of this loop and of another", |k| {
        let body = loop_body(k);
        push_loop(k, body);
        push_loop(k, body);
    }),
    (205, "is the body of this loop and of another", |k| push_loop(k, k.body)),
    (205, "stands in two places", |k| {
        let inst = k.blocks[k.body].insts[0];
        k.blocks[k.body].insts.push(inst);
    }),
    (209, "wants i32, but has nothing", |k| {
        let body = k.blocks.push(BlockData::default());
        k.push_inst(body, Op::Yield(vec![]), &[], Loc::default());
        push_loop(k, body);
    }),
    (209, "the kernel's body has parameters", |k| {
        k.push_block_param(k.body, scalar());
    }),
    (216, "the kernel name `a b` is not a word", |k| k.name = "a b".to_owned()),
    (217, "the grid has no axis", |k| {
        *k = Kernel::new("empty");
    }),
    (218, "dim `Z` has divisor 0", |k| {
        k.dims.push(DimData { name: "Z".to_owned(), size: DimSize::Dynamic { divisor: 0 } });
    }),
    (228, "loops nest deeper than 64", |k| {
        let v = k.grid[0].coord;
        let mut body = loop_body(k);
        for _ in 0..70 {
            let outer = k.blocks.push(BlockData::default());
            k.push_block_param(outer, scalar());
            let inner = Op::Loop { kind: LoopKind::Carried, lo: v, hi: v, inits: vec![], body };
            k.push_inst(outer, inner, &[], Loc::default());
            k.push_inst(outer, Op::Yield(vec![]), &[], Loc::default());
            body = outer;
        }
        push_loop(k, body);
    }),
];

fn push(k: &mut Kernel, op: Op, types: &[TileType]) {
    k.push_inst(k.body, op, types, Loc::default());
}

fn loop_body(k: &mut Kernel) -> Block {
    let body = k.blocks.push(BlockData::default());
    k.push_block_param(body, scalar());
    k.push_inst(body, Op::Yield(vec![]), &[], Loc::default());
    body
}

fn push_loop(k: &mut Kernel, body: Block) {
    let v = k.grid[0].coord;
    push(k, Op::Loop { kind: LoopKind::Carried, lo: v, hi: v, inits: vec![], body }, &[]);
}

#[track_caller]
fn expect_one(kernel: Kernel, code: u16, words: &str) {
    let text = kernel.to_string();
    let errors = kernel.violations();
    let shown = format!("{errors:#?}\n{text}");
    assert_eq!(errors.len(), 1, "wanted ATL{code} ({words}) alone: {shown}");
    assert_eq!(errors[0].code.0, code, "{shown}");
    assert!(errors[0].message.contains(words), "{words}: {shown}");
    assert!(verify(kernel).is_err());
}

#[test]
fn the_base_is_well_formed() {
    let kernel = verify(base()).unwrap();
    assert_eq!(kernel.name, "k");
    assert_eq!(kernel.into_inner().params.len(), 2);
}

#[test]
fn each_broken_rule_has_its_code() {
    for case in TEXT_CASES {
        let text = case_text(case);
        let kernel = parse_kernel(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        expect_one(kernel, case.0, case.1);
    }
}

#[test]
fn each_rule_that_text_cannot_break_has_its_code() {
    for (code, words, change) in DIRECT_CASES {
        let mut kernel = base();
        change(&mut kernel);
        expect_one(kernel, *code, words);
    }
}

#[test]
fn every_code_has_a_case() {
    let mut covered: BTreeSet<u16> = TEXT_CASES.iter().map(|c| c.0).collect();
    covered.extend(DIRECT_CASES.iter().map(|c| c.0));
    // The table in the verifier's header is the list of codes.
    let header = include_str!("../src/verify/mod.rs").lines().take_while(|l| l.starts_with("//!"));
    let codes: Vec<u16> = header.filter_map(|l| l.strip_prefix("//! | ")?.split(' ').next()?.parse().ok()).collect();
    // 230 to 232 are those of fusions.
    assert_eq!(codes, (201..=229).chain(233..=234).collect::<Vec<u16>>());
    for code in codes {
        assert!(covered.contains(&code), "no case for ATL{code}");
    }
}

#[test]
fn every_breach_is_reported() {
    let text =
        FRAME.replace("BODY", "store %x[%two : 16, ..], %t yield loop %i in %zero..%two { }").replace("?16", "?0");
    let codes: Vec<u16> = parse_kernel(&text).unwrap().violations().iter().map(|d| d.code.0).collect();
    assert_eq!(codes, [218, 210, 208, 206, 212]);
}

#[test]
fn what_is_allowed() {
    for body in [
        // Stores in a loop, with the loop index and without; values that nothing uses.
        "loop %i in %zero..%two { store %y[%n : 16, ..], %t %u = exp %t yield }",
        "%c = splat 0 : f32[16, 8] loop %i in %zero..%two { store %y[%n : 16, %i : 8], %c yield }",
        // A load of an output in the slices of a store, before it.
        "%u = load %y[%n : 16, ..] %v = add %u, %t store %y[%n : 16, ..], %v",
        // A load of an output elsewhere in what the program writes itself.
        "%u = load %y[%n : 16, %zero] %v = load %y[%n : 16, %two ..+ 8] store %y[%n : 16, ..], %t",
        // Two loops over one state, and constants that are written twice.
        "%c = splat 0 : f32[16, 8]
         loop %i in %zero..%two { store %y[%n : 16, %i : 8], %c yield }
         loop %j in %zero..%two { %d = load %y[%n : 16, %j : 8] store %y[%n : 16, %j : 8], %d yield }",
        "%again = splat 0 : i32 %c = load %y[%n : 16, %again] store %y[%n : 16, %zero], %c",
        // What a loop carries may have an edge that its body does not move, or none.
        "%u = loop %i in %zero..%two carry (%c = %t) { %v = exp %c yield %v } store %y[%n : 16, ..], %u",
        "%u = loop %i in %zero..%two carry (%c = %t) {
           %o = splat 0 : i32 %v = load %x[%o ..+ 16, ..] %w = load %x[%n : 16, ..] %s = add %v, %w yield %s
         } store %y[%n : 16, ..], %u",
        "%u = loop %i in %zero..%two carry (%c = %t) { %v = load %x[%i : 16, ..] %w = other %v, -inf yield %w }
         store %y[%n : 16, ..], %u",
        "%z = splat 0 : f32[1, 64]
         %u = loop %i in %zero..%two carry (%c = %z) {
           %v = load %x[%i : 16, ..] %s = reduce sum %v axes [0] %w = add %c, %s yield %w
         } %b = broadcast %u : f32[16, 64] store %y[%n : 16, ..], %b",
        // Two stores to parts of one tile.
        "%c = splat 0 : f32[16] store %y[%n : 16, %zero], %c store %y[%n : 16, %two], %c",
    ] {
        let text = FRAME.replace("BODY", body);
        let kernel = parse_kernel(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        if let Err(e) = verify(kernel) {
            panic!("{e}\n{text}");
        }
    }
    pairs_write_apart();
    let extent = GridExtent::Points(Dim::from_u32(1));
    assert_eq!(parse_kernel("kernel @k() dims N: ?1, D: ?1 grid (%d) = (D) {}").unwrap().grid[0].extent, extent);
}

/// Programs of pairs may store a tile and its mirror image, and nothing of other pairs.
fn pairs_write_apart() {
    const FRAME: &str = "kernel @k(%y: out f32[M, M, M]) dims M: ?1 grid (%i, %j) = (tiles(M, 8), upto(M, 8)) {
        %zero = splat 0 : i32[] %t = splat 1 : f32[8, 8] BODY }";
    for (body, wanted) in [
        ("store %y[%i : 8, %j : 8, %zero], %t store %y[%j : 8, %i : 8, %zero], %t", None),
        ("%v = load %y[%j : 8, %i : 8, %zero] store %y[%j : 8, %i : 8, %zero], %v", None),
        ("%v = load %y[%j : 8, %i : 8, %zero] %u = transpose %v store %y[%i : 8, %j : 8, %zero], %u", None),
        ("store %y[%i : 8, %j : 8, %zero], %t store %y[%i : 8, %zero, %j : 8], %t", Some(214)),
        ("store %y[%i : 8, %j : 8, %zero], %t store %y[%j : 8, %zero, %i : 8], %t", Some(214)),
        ("store %y[%i : 8, %j : 8, %zero], %t store %y[%i : 8, %i : 8, %zero], %t", Some(213)),
        ("%v = load %y[%i : 8, %i : 8, %zero] store %y[%i : 8, %j : 8, %zero], %v", Some(211)),
        ("%v = load %y[%j : 8, %zero, %i : 8] store %y[%i : 8, %j : 8, %zero], %v", Some(211)),
    ] {
        let text = FRAME.replace("BODY", body);
        let kernel = parse_kernel(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(parse_kernel(&kernel.to_string()).unwrap().grid, kernel.grid);
        let found = verify(kernel).err().map(|e| e.to_string());
        match wanted {
            None => assert_eq!(found, None, "{text}"),
            Some(code) => {
                let found = found.unwrap_or_default();
                assert!(found.contains(&format!("ATL{code}")), "ATL{code} is not in {found}\n{text}");
            }
        }
    }
    for grid in ["(%i) = (upto(M, 8))", "(%i, %j) = (tiles(M, 4), upto(M, 8))", "(%i, %j) = (upto(M, 8), tiles(M, 8))"]
    {
        let text = FRAME.replace("(%i, %j) = (tiles(M, 8), upto(M, 8))", grid).replace("BODY", "");
        let found = verify(parse_kernel(&text).unwrap()).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(found.contains("ATL217"), "{found}\n{text}");
    }
}
