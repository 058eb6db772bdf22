//! The text form: what is printed reads back as the same kernel, and no text makes the reader panic.

use atlas_dsl::infer::infer;
use atlas_dsl::ir::{Access, BlockData, DimData, DimSize, GridExtent, Loc, ParamData, ParamKind, Stride, TableData};
use atlas_dsl::op::{BinaryOp, LoopKind, Op, Precision, Predicate, ReduceOp, Slice, UnaryOp};
use atlas_dsl::{Block, DType, Dim, Kernel, Param, Table, TileType, Value, diag, parse_kernel, same_kernel, verify};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A random well-typed kernel, decided by a list of numbers so that failures shrink.
struct Generator<'a> {
    kernel: Kernel,
    choices: std::iter::Cycle<std::slice::Iter<'a, u32>>,
    /// Values that may be used at this place.
    scope: Vec<Value>,
    budget: usize,
}

const G: u32 = 0;
const N: u32 = 1;
const D: u32 = 2;
const X: u32 = 0;
const Y: u32 = 1;

impl Generator<'_> {
    fn generate(choices: &[u32]) -> Kernel {
        let kernel = Kernel::new("random");
        let mut g =
            Generator { kernel, choices: choices.iter().cycle(), scope: Vec::new(), budget: choices.len().min(60) };
        g.signature();
        let body = g.kernel.body;
        g.statements(body, 0);
        g.store(body);
        g.kernel
    }

    fn pick(&mut self, n: usize) -> usize {
        *self.choices.next().unwrap() as usize % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.pick(all.len())]
    }

    fn float(&mut self) -> f64 {
        let bits = (u64::from(*self.choices.next().unwrap()) << 32) | u64::from(*self.choices.next().unwrap());
        let values =
            [0.0, -0.0, 1.5, -3.0, 0.1, 1e-7, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MIN_POSITIVE];
        let i = self.pick(values.len() + 3);
        values.get(i).copied().unwrap_or(f64::from_bits(bits))
    }

    fn signature(&mut self) {
        let d = self.one_of(&[4u64, 8, 16]);
        let divisor = self.one_of(&[1, 2, 16]);
        for (name, size) in
            [("G", DimSize::Dynamic { divisor: 1 }), ("N", DimSize::Dynamic { divisor }), ("D", DimSize::Const(d))]
        {
            self.kernel.dims.push(DimData { name: name.to_owned(), size });
        }
        let stride = self.one_of(&[Stride::Const(4), Stride::Const(-64), Stride::Dynamic { divisor: 8 }]);
        let align = self.one_of(&[16, 128]);
        for (name, access) in [("x", Access::In), ("y", Access::Out)] {
            let dtype =
                if access == Access::Out { DType::F32 } else { self.one_of(&[DType::Bf16, DType::F16, DType::F32]) };
            let dims = [G, N, D].map(Dim::from_u32).to_vec();
            let strides = vec![Stride::Dynamic { divisor: 4 }, stride, Stride::Const(1)];
            let kind = ParamKind::Tensor { dtype, dims, strides, align, access };
            self.kernel.params.push(ParamData { name: name.to_owned(), kind });
        }
        for (name, dtype) in [("eps", DType::F32), ("w", DType::I32)] {
            self.kernel.params.push(ParamData { name: name.to_owned(), kind: ParamKind::Scalar { dtype } });
        }
        let values = (0..6).map(|_| self.float() as f32).collect();
        self.kernel.tables.push(TableData { name: "COEF".to_owned(), shape: vec![2, 3], values });
        for extent in [GridExtent::Points(Dim::from_u32(G)), GridExtent::Tiles { dim: Dim::from_u32(N), size: 8 }] {
            let coord = self.kernel.push_grid_axis(extent);
            self.scope.push(coord);
        }
    }

    /// Appends `op` if it is well typed and of modest size.
    fn push(&mut self, block: Block, op: Op) -> Option<Value> {
        let types = infer(&self.kernel, &op, Loc::default()).ok()?;
        if types.iter().any(|t| t.elements() > 4096) {
            return None;
        }
        let inst = self.kernel.push_inst(block, op, &types, Loc::default());
        let results = self.kernel.results[inst].clone();
        self.scope.extend(&results);
        results.first().copied()
    }

    /// A value in scope that `fits`.
    fn find(&mut self, fits: impl Fn(&TileType) -> bool) -> Option<Value> {
        let found: Vec<Value> = self.scope.iter().copied().filter(|&v| fits(self.kernel.ty(v))).collect();
        if found.is_empty() { None } else { Some(self.one_of(&found)) }
    }

    fn index(&mut self) -> Value {
        self.find(|t| *t == TileType::scalar(DType::I32)).unwrap()
    }

    fn like(&mut self, v: Value) -> Value {
        let ty = self.kernel.ty(v).clone();
        self.find(|t| *t == ty).unwrap_or(v)
    }

    fn shape(&mut self) -> Vec<u32> {
        let d = match self.kernel.dims[Dim::from_u32(D)].size {
            DimSize::Const(n) => n as u32,
            DimSize::Dynamic { .. } => 1,
        };
        self.one_of::<&[u32]>(&[&[], &[8, d], &[d, 8], &[8, 1], &[4, 4], &[3], &[2, 1, 4]]).to_vec()
    }

    fn out_slices(&self) -> Vec<Slice> {
        let [g, n] = [self.kernel.grid[0].coord, self.kernel.grid[1].coord];
        vec![Slice::At(g), Slice::Tile { index: n, size: 8 }, Slice::Whole]
    }

    fn store(&mut self, block: Block) {
        let slices = self.out_slices();
        let ty = infer(&self.kernel, &Op::Load { param: Param::from_u32(Y), slices: slices.clone() }, Loc::default())
            .unwrap()
            .remove(0);
        let found = self.find(|t| *t == ty);
        let value =
            found.or_else(|| self.push(block, Op::Splat { value: 0.5, dtype: ty.dtype, shape: ty.shape.clone() }));
        self.push(block, Op::Store { param: Param::from_u32(Y), slices, value: value.unwrap() });
    }

    fn statements(&mut self, block: Block, depth: usize) {
        for _ in 0..2 + self.pick(12) {
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            self.statement(block, depth);
        }
    }

    fn statement(&mut self, block: Block, depth: usize) {
        let any = self.find(|_| true).unwrap();
        let ty = self.kernel.ty(any).clone();
        let op = match self.pick(22) {
            0 | 1 => Op::Splat { value: self.float(), dtype: self.one_of(&DType::ALL), shape: self.shape() },
            2 => Op::Iota { shape: self.shape(), axis: self.pick(2) as u8 },
            3 => Op::DimSize(Dim::from_u32(self.pick(3) as u32)),
            4 => Op::DimTiles { dim: Dim::from_u32(self.pick(3) as u32), size: 1 + self.pick(64) as u32 },
            5 => Op::ScalarParam(Param::from_u32(2 + self.pick(2) as u32)),
            6 => Op::TableGet { table: Table::from_u32(0), indices: vec![self.index(), self.index()] },
            7 | 8 => Op::Unary(self.one_of(UnaryOp::ALL), any),
            9 | 10 => Op::Binary(self.one_of(BinaryOp::ALL), any, self.like(any)),
            11 => Op::Compare(self.one_of(Predicate::ALL), any, self.like(any)),
            12 => {
                let x = self.find(|t| t.dtype != DType::Bool).unwrap();
                let cond = Op::Compare(Predicate::Lt, x, self.like(x));
                let Some(cond) = self.push(block, cond) else { return };
                let shape = self.kernel.ty(cond).shape.clone();
                let Some(on_true) = self.find(|t| t.shape == shape) else { return };
                Op::Select { cond, on_true, on_false: self.like(on_true) }
            }
            13 => Op::Cast(self.one_of(&DType::ALL), any),
            14 => Op::Broadcast { value: any, shape: [&[2][..], &ty.shape].concat() },
            15 => {
                let shape = if self.pick(2) == 0 {
                    [&ty.shape, &[1][..]].concat()
                } else {
                    ty.shape.iter().copied().filter(|&e| e != 1).collect()
                };
                Op::Reshape { value: any, shape }
            }
            16 => {
                let Some(v) = self.find(|t| t.rank() == 2) else { return };
                Op::Transpose(v)
            }
            17 => {
                let Some(value) = self.find(|t| t.rank() > 0) else { return };
                let rank = self.kernel.ty(value).rank() as u8;
                let axes =
                    if self.pick(3) == 0 { (0..rank).collect() } else { vec![self.pick(usize::from(rank)) as u8] };
                Op::Reduce { op: self.one_of(ReduceOp::ALL), value, axes }
            }
            18 => {
                let Some(a) = self.find(|t| t.rank() == 2 && t.dtype.is_float()) else { return };
                let ta = self.kernel.ty(a).clone();
                let found = self.find(|t| t.dtype == ta.dtype && t.rank() == 2 && t.shape[0] == ta.shape[1]);
                let Some(b) = found.or_else(|| self.push(block, Op::Transpose(a))) else { return };
                let out = TileType::new(ta.dtype.accumulator(), [ta.shape[0], self.kernel.ty(b).shape[1]]);
                let acc = self.find(|t| *t == out);
                let tf32 = ta.dtype == DType::F32 && self.pick(2) == 0;
                Op::Dot { a, b, acc, precision: if tf32 { Precision::Tf32 } else { Precision::Default } }
            }
            19 => {
                let slices = if self.pick(3) == 0 {
                    self.push(block, Op::Load { param: Param::from_u32(Y), slices: self.out_slices() });
                    return;
                } else {
                    let n = self.kernel.grid[1].coord;
                    let [a, b, c] = [self.index(), self.index(), self.index()];
                    let first = self.one_of(&[Slice::At(a), Slice::Span { start: a, len: 3 }]);
                    let second = self.one_of(&[
                        Slice::At(b),
                        Slice::Tile { index: n, size: 8 },
                        Slice::Span { start: b, len: 8 },
                    ]);
                    let third = self.one_of(&[Slice::Whole, Slice::Whole, Slice::At(c)]);
                    vec![first, second, third]
                };
                Op::Load { param: Param::from_u32(X), slices }
            }
            20 => return self.store(block),
            _ if depth < 3 => return self.for_loop(block, depth),
            _ => return,
        };
        self.push(block, op);
    }

    fn for_loop(&mut self, outer: Block, depth: usize) {
        let kind = self.one_of(LoopKind::ALL);
        let (lo, hi) = (self.index(), self.index());
        let inits: Vec<Value> = (0..self.pick(4)).map(|_| self.find(|_| true).unwrap()).collect();
        let body = self.kernel.blocks.push(BlockData::default());
        let outside = self.scope.len();
        let index = self.kernel.push_block_param(body, TileType::scalar(DType::I32));
        self.scope.push(index);
        let mut carried = Vec::new();
        for &init in &inits {
            let ty = self.kernel.ty(init).clone();
            carried.push(self.kernel.push_block_param(body, ty));
        }
        self.scope.extend(&carried);
        self.statements(body, depth + 1);
        let next = carried.into_iter().map(|v| self.like(v)).collect();
        self.push(body, Op::Yield(next));
        self.scope.truncate(outside);
        self.push(outer, Op::Loop { kind, lo, hi, inits, body });
    }
}

fn choices() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), 8..200)
}

/// Verifies what parses; whatever happens is shown without a panic.
fn digest(text: &str) {
    match parse_kernel(text).and_then(verify) {
        Ok(kernel) => {
            let again = parse_kernel(&kernel.to_string()).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
            assert!(same_kernel(&kernel, &again), "{}\n{again}", *kernel);
        }
        Err(errors) => {
            assert!(!errors.0.is_empty());
            assert!(diag::render(&errors, "random.tile", text).contains(&errors.0[0].code.to_string()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_printed_reads_back_and_verifies(choices in choices()) {
        let kernel = Generator::generate(&choices);
        let text = kernel.to_string();
        let again = parse_kernel(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert!(same_kernel(&kernel, &again), "{text}\n{again}");
        prop_assert_eq!(&text, &again.to_string());
        if let Err(e) = verify(kernel) {
            return Err(TestCaseError::fail(format!("{e}\n{text}")));
        }
        if let Err(e) = verify(again) {
            return Err(TestCaseError::fail(format!("{e}\n{text}")));
        }
    }

    #[test]
    fn names_of_values_and_comments_do_not_matter(choices in choices(), shift in 1u32..1000) {
        let kernel = Generator::generate(&choices);
        let mut renamed = String::new();
        let mut rest = &*kernel.to_string();
        while let Some((before, after)) = rest.split_once('%') {
            let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            renamed.push_str(before);
            renamed.push('%');
            if digits > 0 {
                renamed.push_str(&format!("v{}_", after[..digits].parse::<u32>().unwrap() ^ shift));
            }
            rest = &after[digits..];
        }
        renamed.push_str(rest);
        let renamed = renamed.replace('\n', " // %0 = kernel {\n\n");
        let again = parse_kernel(&renamed).map_err(|e| TestCaseError::fail(format!("{e}\n{renamed}")))?;
        prop_assert!(same_kernel(&kernel, &again));
    }

    #[test]
    fn another_kernel_is_not_the_same(a in choices(), b in choices()) {
        let (a, b) = (Generator::generate(&a), Generator::generate(&b));
        prop_assert_eq!(same_kernel(&a, &b), a.to_string() == b.to_string());
    }

    #[test]
    fn broken_text_never_panics(
        choices in choices(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), any::<char>()), 1..6),
    ) {
        let mut text: Vec<char> = Generator::generate(&choices).to_string().chars().collect();
        for (at, kind, c) in edits {
            if text.is_empty() {
                break;
            }
            let at = at.index(text.len());
            let other = text[kind as usize % text.len()];
            match kind % 8 {
                0 => text.truncate(at),
                1 => drop(text.remove(at)),
                2 => text[at] = c,
                3 => text.insert(at, c),
                4 => text[at] = other,
                5 => text.insert(at, other),
                6 => text[at] = b"0179%@[]{}(),:=.?-"[kind as usize / 8 % 18] as char,
                _ => text.swap(at, kind as usize / 8 % at.max(1)),
            }
        }
        digest(&text.into_iter().collect::<String>());
    }

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,200}") {
        digest(&text);
    }

    #[test]
    fn numbers_round_trip(bits in any::<u64>(), bits32 in any::<u32>()) {
        let x = f64::from_bits(bits);
        let y: f64 = atlas_dsl::text::Cursor::new(&atlas_dsl::text::float_text(x)).float().unwrap();
        prop_assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan());
        let x = f32::from_bits(bits32);
        let y: f32 = atlas_dsl::text::Cursor::new(&atlas_dsl::text::float_text(x)).float().unwrap();
        prop_assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan());
    }
}

/// The properties above speak of every operation only if the generator makes every operation.
#[test]
fn the_generator_makes_every_operation() {
    let mut seed = 1u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed >> 8
    };
    let mut seen = BTreeSet::new();
    for _ in 0..300 {
        let choices: Vec<u32> = (0..150).map(|_| next()).collect();
        for op in Generator::generate(&choices).insts.values() {
            let name = format!("{op:?}");
            seen.insert(name.split([' ', '(']).next().unwrap().to_owned());
            match op {
                Op::Unary(op, _) => seen.insert(format!("unary {}", op.name())),
                Op::Binary(op, ..) => seen.insert(format!("binary {}", op.name())),
                Op::Compare(p, ..) => seen.insert(format!("compare {}", p.name())),
                Op::Reduce { op, .. } => seen.insert(format!("reduce {}", op.name())),
                Op::Dot { precision, acc, .. } => seen.insert(format!("dot {} {}", precision.name(), acc.is_some())),
                Op::Loop { kind, inits, .. } => seen.insert(format!("{} {}", kind.name(), inits.len())),
                Op::Load { slices, .. } => slices.iter().all(|s| {
                    seen.insert(format!("slice {}", format!("{s:?}").split([' ', '(']).next().unwrap()));
                    true
                }),
                _ => true,
            };
        }
    }
    let operations = 20;
    let mnemonics = UnaryOp::ALL.len() + BinaryOp::ALL.len() + Predicate::ALL.len() + ReduceOp::ALL.len();
    let (dots, loops, slices) = (4, 8, 4);
    assert_eq!(seen.len(), operations + mnemonics + dots + loops + slices, "{seen:#?}");
}

#[test]
fn canonical_text() {
    let source =
        "kernel @k(%x: bf16[G, N, D], %y: out f32[N], %eps: f32) // the `strides` are those of contiguous tensors
dims G: ?1, N: ?16, D = 64
table @COEF: f32[2] = [1, -inf]
grid (%g, %n) = (G, tiles(N, 16)) {
  %zero = splat 0 : i32
  %steps = tiles(N, 32)
  %nan = splat nan : f32[16]
  %a, %b = pipeline %i in %zero..%steps carry (%c = %nan, %d: i32 = %g) {
    %t = load %x[%g, %n : 16, %i ..+ 8]
    yield %c, %d
  }
  %x = get @COEF[%b] // a value may be called as a parameter is
  %r = reduce max %a axes [0]
  store %y[%n : 16], %a
}";
    let want = "kernel @k(
  %x: bf16[G, N, D] strides [?128, 64, 1] align 16,
  %y: out f32[N] strides [1] align 16,
  %eps: f32,
)
dims G: ?1, N: ?16, D = 64
table @COEF: f32[2] = [1.0, -inf]
grid (%0, %1) = (G, tiles(N, 16)) {
  %2 = splat 0 : i32
  %3 = tiles(N, 32) : i32
  %4 = splat nan : f32[16]
  %9, %10 = pipeline %5 in %2..%3 carry (%6: f32[16] = %4, %7: i32 = %0) {
    %8 = load %x[%0, %1 : 16, %5 ..+ 8] : bf16[16, 8]
    yield %6, %7
  }
  %11 = get @COEF[%10] : f32
  %12 = reduce max %9 axes [0] : f32[1]
  store %y[%1 : 16], %9
}
";
    let kernel = parse_kernel(source).unwrap();
    assert_eq!(kernel.to_string(), want);
    let locs: Vec<(u32, u32)> = kernel.insts.keys().map(|i| (kernel.locs[i].line, kernel.locs[i].column)).collect();
    assert_eq!(locs, [(5, 3), (6, 3), (7, 3), (9, 5), (10, 5), (8, 3), (12, 3), (13, 3), (14, 3)]);
}

#[test]
fn syntax_errors_say_where_what_and_what_instead() {
    for (source, want) in [
        ("", "error[ATL001]: found the end of the text, wanted `kernel` (line 1, column 1)"),
        ("kernel @k(%x f32)", "error[ATL001]: found `f32`, wanted `:` (line 1, column 14)"),
        ("kernel @k()\ngrid () = () {\n  $", "error[ATL001]: found `$`, wanted a statement or `}` (line 3, column 3)"),
        ("kernel @é", "error[ATL001]: found `@`, wanted a `@name` (line 1, column 8)"),
        ("kernel @k(%x: f31)", "error[ATL001]: found `f31`, wanted an element type (line 1, column 15)"),
        (
            "kernel @k() dims N = 99999999999999999999",
            "error[ATL002]: the number `99999999999999999999` is out of range (line 1, column 22)",
        ),
        ("kernel @k(%x: f32[M]) grid () = () {}", "error[ATL003]: no dim is called `M` (line 1, column 19)"),
        (
            "kernel @k() grid () = () { %a = splat 0 : f32 %a = splat 1 : f32 }",
            "error[ATL004]: `%a` is defined twice (line 1, column 47)",
        ),
        (
            "kernel @k() grid () = () { %a = splat 0 : f32 %b = foo %a }",
            "error[ATL005]: there is no operation `foo` (line 1, column 52)",
        ),
        (
            "kernel @k() grid () = () { %a, %b = splat 0 : f32 }",
            "error[ATL007]: the operation has 1 results, but 2 are named (line 1, column 28)",
        ),
        (
            "kernel @k() grid () = () { %a = splat 0 : f32 %b = exp %a : f64 }",
            "error[ATL118]: the operation gives f32, but f64 is written (line 1, column 47)",
        ),
    ] {
        assert_eq!(parse_kernel(source).unwrap_err().to_string(), want, "{source}");
    }
    let deep = format!(
        "kernel @k() grid () = () {{ %z = splat 0 : i32 {}",
        (0..70).map(|i| format!("loop %i{i} in %z..%z {{ ")).collect::<String>()
    );
    assert!(parse_kernel(&deep).unwrap_err().to_string().contains("ATL006"));
}

#[test]
fn diagnostics_render_with_their_line() {
    let source = "kernel @k(%x: f32[N])\ndims N: ?1\ngrid (%n) = (N) {\n  %é = splat 0 : f32\n}";
    let errors = parse_kernel(source).unwrap_err();
    let want = "error[ATL001]: found `%`, wanted a statement or `}`
 --> k.tile:4:3
  |
4 |   %é = splat 0 : f32
  |   ^^
";
    assert_eq!(diag::render(&errors, "k.tile", source), want);
    let nowhere = diag::Diagnostic::new(212, Loc { line: 77, column: 1 }, "no such line").note("a note");
    assert_eq!(diag::render(&nowhere.into(), "k.tile", source), "error[ATL212]: no such line\n |\n = note: a note\n");
}

#[test]
fn dotted_words() {
    let mut text = atlas_dsl::text::Cursor::new("mma.m16n8k16.bf16 ldmatrix.x4.16x256b %a");
    assert_eq!(text.dotted().unwrap(), "mma.m16n8k16.bf16");
    assert_eq!(text.dotted().unwrap(), "ldmatrix.x4.16x256b");
    assert_eq!(text.dotted().unwrap_err().to_string(), "error[ATL001]: found `%a`, wanted a word (line 1, column 39)");
}

#[test]
fn equal_text_is_not_enough() {
    let splat = |dtype, value: f64, result: DType| {
        let mut k = Kernel::new("k");
        k.push_inst(k.body, Op::Splat { value, dtype, shape: vec![] }, &[TileType::scalar(result)], Loc::default());
        k
    };
    let (a, b) = (splat(DType::F32, 1.0, DType::F64), splat(DType::F64, 1.0, DType::F64));
    assert_eq!(a.to_string(), b.to_string());
    assert!(!same_kernel(&a, &b));
    // Numbers compare by their bits, but every NaN is one number.
    assert!(!same_kernel(&splat(DType::F32, 0.0, DType::F32), &splat(DType::F32, -0.0, DType::F32)));
    let nan = f64::from_bits(f64::NAN.to_bits() | 1);
    assert!(same_kernel(&splat(DType::F32, f64::NAN, DType::F32), &splat(DType::F32, nan, DType::F32)));
}
