//! The kernels whose passes over a chunk are launches: their row of the table, and what each should write.

use super::mlp::{ACT, BEND, BY_INNER, BY_MET, DELTA, INNER, MIXED, SLOPE};
use super::problem::{Head, chunk, token_rows};
use super::tape::{Matrix, Tape, Var};
use crate::problem::{Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

pub(crate) const OMEGA_SPLIT_BACKWARD: Op = Op {
    scalars: &[("scale", 2.0), ("predicts", 1.0), ("chunk", 8.0), ("at", 1.0)],
    state: &["w1", "w2", "s1", "s2", "rows", "slopes", "dw1", "dw2", "ds1", "ds2", "dz", "dback", "by_key", "by_read"],
    fill: |p, name| {
        let of = name.trim_end_matches("_after");
        super::problem::fill(
            p,
            if ["rows", "slopes", "dz", "dback", "dzs", "dmade"].contains(&of) { "factors" } else { of },
        )
    },
    ..Op::of(Required {
        name: "omega_split_backward",
        kernels: const {
            &[
                &super::omega_mlp_split_states,
                &super::omega_mlp_split_state_errors,
                &super::omega_mlp_split_next_state,
                &super::omega_mlp_split_back_start,
                &super::omega_mlp_split_back_errors,
                &super::omega_mlp_split_back,
                &super::omega_mlp_split_ends,
                &super::omega_mlp_split_keys,
            ]
        },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: |p, inputs| super::problem::checked(p, inputs, checked),
        flops,
        verification: |op, dtype| {
            let mut all = problems(op, dtype, &VERIFICATION);
            all.extend((dtype == DType::F32).then(|| problems(op, dtype, &[OF_ONE_ELEMENT])).into_iter().flatten());
            all
        },
        simulation: |op, dtype| problems(op, dtype, &SIMULATION),
        measured: &[
            Measured::bf16("omega_mlp_split_states", "omega_mlp_split_states", &[1, 400, 16, 64, 6, 80, 64, 256]),
            Measured::bf16(
                "omega_mlp_split_state_errors",
                "omega_mlp_split_state_errors",
                &[1, 400, 16, 64, 6, 80, 256],
            ),
            Measured::bf16(
                "omega_mlp_split_next_state",
                "omega_mlp_split_next_state",
                &[1, 400, 16, 64, 6, 80, 64, 256],
            ),
            Measured::bf16(
                "omega_mlp_split_back_start",
                "omega_mlp_split_back_start",
                &[1, 400, 16, 64, 6, 80, 64, 4, 256, 2, 64],
            ),
            Measured::bf16("omega_mlp_split_back_errors", "omega_mlp_split_back_errors", &[1, 16, 6, 80, 64, 256, 4]),
            Measured::bf16(
                "omega_mlp_split_back",
                "omega_mlp_split_back",
                &[1, 384, 16, 64, 400, 6, 64, 80, 64, 256, 4, 2],
            ),
            Measured::bf16("omega_mlp_split_ends", "omega_mlp_split_ends", &[1, 400, 16, 64, 6, 80, 64, 256, 4]),
            Measured::bf16("omega_mlp_split_keys", "omega_mlp_split_keys", &[1, 16, 6, 80, 256, 64, 4]),
        ],
    })
};

/// TrainedSizes of a problem: B, N, H, D, P, E, C, L, K, M.
type TrainedSizes = [u64; 10];

const VERIFICATION: [(TrainedSizes, &str); 5] = [
    ([2, 23, 2, 16, 23, 24, 3, 8, 16, 40], "ragged"),
    ([1, 37, 1, 72, 45, 136, 2, 32, 40, 70], "several tiles of all rows; keys before the first chunk"),
    ([1, 3, 2, 153, 3, 24, 3, 1, 8, 40], "chunks of one token"),
    ([1, 70, 2, 64, 70, 64, 2, 64, 80, 256], "a short last chunk"),
    ([1, 9, 1, 1, 9, 1, 2, 8, 8, 40], "keys and values of one element"),
];

/// In f32 alone: a sum of a few products of single numbers may be far smaller than these, and nothing averages their roundings.
const OF_ONE_ELEMENT: (TrainedSizes, &str) = ([1, 9, 1, 1, 9, 1, 2, 8, 8, 1], "rows of one element");

const SIMULATION: [(TrainedSizes, &str); 2] = [
    ([1, 11, 2, 45, 11, 16, 2, 8, 16, 32], "ragged"),
    ([1, 19, 1, 72, 19, 72, 2, 16, 24, 40], "several tiles of all rows"),
];

fn problems(op: &'static Op, dtype: DType, of: &[(TrainedSizes, &'static str)]) -> Vec<Problem> {
    let made = |&(sizes, note): &(TrainedSizes, &'static str)| {
        let [b, n, h, d, p, e, c, l, k, m] = sizes;
        let on = move |kernel: usize, dims: &[u64]| {
            let of = Problem::new(op, op.kernel(kernel), dtype, dims).note(note);
            of.with_scalar("chunk", l as f32).with_scalar("past", (p - n) as f32)
        };
        [
            on(0, &[b, p, h, d, c, k, e, m]),
            on(1, &[b, p, h, e, c, k, m]),
            on(1, &[b, p, h, e, c, k, m]).with_scalar("predicts", 0.0),
            // After the last chunk it writes nothing.
            on(2, &[b, p, h, d, c, k, e, m]).with_scalar("at", 0.0),
            on(2, &[b, p, h, d, c, k, e, m]).with_scalar("at", (c - 1) as f32),
            on(3, &[b, p, h, d, c, k, e, 4, m, 2, l]),
            on(4, &[b, h, c, k, e, m, 4]),
            on(4, &[b, h, c, k, e, m, 4]).with_scalar("predicts", 0.0),
            on(5, &[b, n, h, d, p, c, l, k, e, m, 4, 2]),
            on(5, &[b, n, h, d, p, c, l, k, e, m, 4, 2]).with_scalar("at", 0.0),
            on(6, &[b, p, h, d, c, k, e, m, 4]),
            on(7, &[b, h, c, k, m, d, 4]),
        ]
    };
    of.iter().flat_map(made).collect()
}

/// What a kernel reads of one head.
struct GivenHead<'a> {
    p: &'a Problem,
    head: Head,
    tape: Tape,
}

impl GivenHead<'_> {
    fn dim(&self, name: &str) -> usize {
        self.p.dim(name)
    }

    fn scalar(&self, name: &str) -> usize {
        self.p.scalar(name) as usize
    }

    /// A matrix of all of a tensor.
    fn all(&mut self, name: &str, cols: usize) -> Var {
        let of = Matrix::new(cols, self.head[name].clone());
        self.tape.given(of)
    }

    /// A matrix of a chunk.
    fn chunk(&mut self, name: &str, cols: usize, c: usize) -> Var {
        let of = chunk(&self.head, name, cols, (c, self.p.dim("C")));
        self.tape.given(of)
    }

    /// One of several matrices of a chunk.
    fn part(&mut self, name: &str, cols: usize, c: usize, place: i32) -> Var {
        let of = chunk(&self.head, name, cols, (c, self.p.dim("C"))).values;
        let parts = self.p.dim(if name == "factors" { "F" } else { "V" });
        let len = of.len() / parts;
        self.tape.given(Matrix::new(cols, of[place as usize * len..][..len].to_vec()))
    }

    /// The keys of a chunk, or their values.
    fn keys(&mut self, name: &str, cols: usize, c: usize) -> Var {
        let k = self.dim("K");
        let has_tokens = self.p.kernel.dims.iter().any(|dim| dim.name == "N");
        let (chunk, past) = if has_tokens {
            (self.dim("L"), self.dim("P") - self.dim("N"))
        } else {
            (self.scalar("chunk"), self.scalar("past"))
        };
        let oldest = (c * chunk + past + chunk) as i64 - k as i64;
        let rows = token_rows(&self.head, name, cols, oldest, k);
        self.tape.given(rows)
    }

    /// The tokens of a chunk.
    fn tokens(&mut self, name: &str, cols: usize, c: usize) -> Var {
        let l = self.dim("L");
        let rows = token_rows(&self.head, name, cols, (c * l) as i64, l);
        self.tape.given(rows)
    }

    /// Rows times their weights.
    fn weighed(&mut self, rows: Var, weights: &str, c: usize, sign: f64) -> Var {
        let weights = self.chunk(weights, 1, c);
        let product = self.tape.mul(rows, weights);
        self.tape.scale(product, sign)
    }

    fn values(&self, of: Var) -> Vec<f64> {
        self.tape.value(of).values.clone()
    }

    /// `name` with the part of one chunk replaced; of a tensor that is not read, the others are not written.
    fn put(&self, name: &'static str, c: usize, part: Vec<f64>) -> (&'static str, Vec<f64>) {
        let all = self.dim("C") * part.len();
        let mut to = self.head.get(name).cloned().unwrap_or_else(|| vec![f64::NAN; all]);
        to[c * part.len()..][..part.len()].copy_from_slice(&part);
        (name, to)
    }

    /// Behind gelu and its slope, of the keys of a chunk.
    fn hidden(&mut self, c: usize, w: Var) -> [(&'static str, Vec<f64>); 2] {
        let x = self.keys("k", self.dim("D"), c);
        let z = self.tape.dot_turned(x, w);
        let (act, slope) = (self.tape.gelu(z), self.tape.gelu_slope(z));
        [("rows", self.values(act)), ("slopes", self.values(slope))]
    }

    /// `scale_a a + scale_b b + more`, where the scales are numbers of a chunk.
    fn mix(&mut self, [a, b]: [(&str, Var, f64); 2], more: &[Var], c: usize) -> Var {
        let mut scaled = |(name, of, sign): (&str, Var, f64)| {
            let by = self.head[name][c];
            self.tape.scale(of, sign * by)
        };
        let (a, b) = (scaled(a), scaled(b));
        let sum = self.tape.add(a, b);
        more.iter().fold(sum, |sum, more| self.tape.add(sum, *more))
    }
}

fn checked(p: &Problem, head: Head) -> Head {
    let of = GivenHead { p, head, tape: Tape::default() };
    match p.kernel.name {
        "omega_mlp_split_states" => states(of),
        "omega_mlp_split_state_errors" => state_errors(of),
        "omega_mlp_split_next_state" => next_state(of),
        "omega_mlp_split_back_start" => back_start(of),
        "omega_mlp_split_back_errors" => back_errors(of),
        "omega_mlp_split_back" => back(of),
        "omega_mlp_split_ends" => ends(of),
        _ => keys(of),
    }
}

/// The matrices of a state and the dims of their columns.
const STATE: [(&str, &str); 4] = [("w1", "M"), ("w2", "D"), ("s1", "M"), ("s2", "D")];

fn states(mut of: GivenHead<'_>) -> Head {
    let mut out = Head::new();
    for (name, _) in STATE {
        let start = of.head[format!("{name}_start").as_str()].clone();
        out.extend([of.put(name, 0, start)]);
    }
    let w = of.all("w2_start", of.dim("D"));
    out.extend(of.hidden(0, w));
    out
}

fn state_errors(mut of: GivenHead<'_>) -> Head {
    let (at, e, m) = (of.scalar("at"), of.dim("E"), of.dim("M"));
    let [v, rk] = ["v", "rk"].map(|name| of.keys(name, e, at));
    let (rows, w) = (of.all("rows", m), of.chunk("w1", m, at));
    let made = of.tape.dot_turned(rows, w);
    let read = of.tape.add(rk, made);
    let found = if of.p.scalar("predicts") > 0.0 { of.tape.sub(read, v) } else { of.tape.scale(v, -1.0) };
    let errors = of.tape.scale(found, of.p.scalar("scale").into());
    [of.put("errors", at, of.values(errors))].into()
}

fn next_state(mut of: GivenHead<'_>) -> Head {
    let (at, [d, e, m]) = (of.scalar("at"), ["D", "E", "M"].map(|dim| of.p.dim(dim)));
    let names = ["w1", "w2", "s1", "s2", "rows", "slopes"];
    if at + 1 == of.dim("C") {
        of.head.retain(|name, _| names.contains(name));
        return of.head;
    }
    let [w1, w2, s1, s2] = STATE.map(|(name, cols)| of.chunk(name, of.p.dim(cols), at));
    let (errors, rows, slopes) = (of.chunk("errors", e, at), of.all("rows", m), of.all("slopes", m));
    let x = of.keys("k", d, at);
    let back = of.tape.dot(errors, w1);
    let delta = of.tape.mul(back, slopes);
    let mut out = Head::new();
    let mut next = None;
    for (names, [w, s], [change, by]) in
        [(["w1", "s1"], [w1, s1], [errors, rows]), (["w2", "s2"], [w2, s2], [delta, x])]
    {
        let added = ["psi_end", "phi_end"].map(|weights| {
            let weighed = of.weighed(change, weights, at, if weights == "psi_end" { -1.0 } else { 1.0 });
            of.tape.turned_dot(weighed, by)
        });
        let after = of.mix([("lam_end", w, 1.0), ("old_end", s, -1.0)], &[added[0]], at);
        let momentum = of.mix([("beta_end", s, 1.0), ("beta_end", s, 0.0)], &[added[1]], at);
        out.extend([of.put(names[0], at + 1, of.values(after)), of.put(names[1], at + 1, of.values(momentum))]);
        next = Some(after);
    }
    out.extend(next.map(|w| of.hidden(at + 1, w)).into_iter().flatten());
    out
}

/// `psi_end (*) -w + phi_end (*) s + mixed^T rows`, of what keys see of the gradients by a matrix and by its momentum.
fn behind(of: &mut GivenHead<'_>, c: usize, [w, s]: [Var; 2], [mixed, rows]: [i32; 2]) -> Var {
    let (w, s) = (of.weighed(w, "psi_end", c, -1.0), of.weighed(s, "phi_end", c, 1.0));
    let (mixed, rows) = (of.part("mixed", of.dim("K"), c, mixed), of.part("queries", of.dim("M"), c, rows));
    let felt = of.tape.turned_dot(mixed, rows);
    let sum = of.tape.add(w, s);
    of.tape.add(sum, felt)
}

/// The gradients at the hidden rows of a chunk, from those by the state after it.
fn at_hidden(of: &mut GivenHead<'_>, c: usize, [dw1, dw2, ds1, ds2]: [Var; 4]) -> Head {
    let [d, e, m] = ["D", "E", "M"].map(|dim| of.p.dim(dim));
    let (x, errors) = (of.keys("k", d, c), of.chunk("errors", e, c));
    let seen = [dw2, ds2].map(|by| of.tape.dot_turned(x, by));
    let felt = [dw1, ds1].map(|by| of.tape.dot(errors, by));
    let by_delta = behind(of, c, seen, [MIXED, BY_INNER]);
    let by_act = behind(of, c, felt, [BY_MET, INNER]);
    let [slope, bend] = [SLOPE, BEND].map(|place| of.part("factors", m, c, place));
    let back = of.tape.mul(slope, by_delta);
    let (bent, sloped) = (of.tape.mul(bend, by_delta), of.tape.mul(slope, by_act));
    let dz = of.tape.add(bent, sloped);
    [("dz", of.values(dz)), ("dback", of.values(back))].into()
}

/// The gradients by the state.
const BY_STATE: [(&str, &str); 4] = [("dw1", "M"), ("dw2", "D"), ("ds1", "M"), ("ds2", "D")];

fn back_start(mut of: GivenHead<'_>) -> Head {
    let by_state = BY_STATE.map(|(name, cols)| of.all(name, of.p.dim(cols)));
    let last = of.dim("C") - 1;
    at_hidden(&mut of, last, by_state)
}

fn back_errors(mut of: GivenHead<'_>) -> Head {
    let (at, [e, m]) = (of.scalar("at"), ["E", "M"].map(|dim| of.p.dim(dim)));
    let act = of.part("factors", m, at, ACT);
    let (by_w, by_s) = (of.weighed(act, "psi_end", at, -1.0), of.weighed(act, "phi_end", at, 1.0));
    let [dw, ds, back] = ["dw1", "ds1", "dback"].map(|name| of.all(name, m));
    let w = of.chunk("w1", m, at);
    let mut sum = of.chunk("by_read", e, at);
    for (rows, matrix) in [(by_w, dw), (by_s, ds), (back, w)] {
        let product = of.tape.dot_turned(rows, matrix);
        sum = of.tape.add(sum, product);
    }
    let by_error = of.tape.scale(sum, of.p.scalar("scale").into());
    let made = of.tape.scale(by_error, of.p.scalar("predicts").into());
    [of.put("by_read", at, of.values(by_error)), ("dmade", of.values(made))].into()
}

fn back(mut of: GivenHead<'_>) -> Head {
    let (at, [d, e, m]) = (of.scalar("at"), ["D", "E", "M"].map(|dim| of.p.dim(dim)));
    let after = BY_STATE.map(|(name, cols)| of.all(name, of.p.dim(cols)));
    let mut out = Head::new();
    let kept = ["dw1_after", "dw2_after", "ds1_after", "ds2_after"];
    out.extend(kept.into_iter().zip(after).map(|(name, by)| of.put(name, at, of.values(by))));
    let [dw1, dw2, ds1, ds2] = after;
    let (made, back) = (of.all("dmade", e), of.all("dback", m));
    let by_act = {
        let w = of.chunk("w1", m, at);
        of.tape.dot(made, w)
    };
    let (slope, act) = (of.part("factors", m, at, SLOPE), of.part("factors", m, at, ACT));
    let (sloped, dz) = (of.tape.mul(slope, by_act), of.all("dz", m));
    let by_z = of.tape.add(dz, sloped);
    out.extend([of.put("dzs", at, of.values(by_z))]);
    let (errors, x) = (of.chunk("errors", e, at), of.keys("k", d, at));
    let (by_out, xq) = (of.tokens("dy", e, at), of.tokens("q", d, at));
    let [inner, by_inner] = [INNER, BY_INNER].map(|place| of.part("queries", m, at, place));
    // Of a token: what it reads of a matrix and of its momentum.
    let read = |of: &mut GivenHead<'_>, name: &str, sign: f64, [rows, by]: [Var; 2]| {
        let weighed = of.weighed(rows, name, at, sign);
        of.tape.turned_dot(weighed, by)
    };
    let of_w1 =
        [read(&mut of, "lam", 1.0, [by_out, inner]), of.tape.turned_dot(errors, back), of.tape.turned_dot(made, act)];
    let of_w2 = [read(&mut of, "lam", 1.0, [by_inner, xq]), of.tape.turned_dot(by_z, x)];
    let (of_s1, of_s2) = (read(&mut of, "old", -1.0, [by_out, inner]), read(&mut of, "old", -1.0, [by_inner, xq]));
    let before = [
        of.mix([("lam_end", dw1, 1.0), ("lam_end", dw1, 0.0)], &of_w1, at),
        of.mix([("lam_end", dw2, 1.0), ("lam_end", dw2, 0.0)], &of_w2, at),
        of.mix([("beta_end", ds1, 1.0), ("old_end", dw1, -1.0)], &[of_s1], at),
        of.mix([("beta_end", ds2, 1.0), ("old_end", dw2, -1.0)], &[of_s2], at),
    ];
    out.extend(BY_STATE.into_iter().zip(before).map(|((name, _), by)| (name, of.values(by))));
    out.extend(at_hidden(&mut of, at.saturating_sub(1), before));
    out
}

fn ends(mut of: GivenHead<'_>) -> Head {
    let [d, e, m] = ["D", "E", "M"].map(|dim| of.p.dim(dim));
    let mut out = Head::new();
    for c in 0..of.dim("C") {
        let state = STATE.map(|(name, cols)| of.chunk(name, of.p.dim(cols), c));
        let after = ["dw1_after", "dw2_after", "ds1_after", "ds2_after"];
        let after: Vec<Var> =
            after.into_iter().zip(STATE).map(|(name, (_, cols))| of.chunk(name, of.p.dim(cols), c)).collect();
        let (x, errors) = (of.keys("k", d, c), of.chunk("errors", e, c));
        let (delta, act) = (of.part("factors", m, c, DELTA), of.part("factors", m, c, ACT));
        // Rows of keys: what they see of the gradients by the matrices, and by the momenta.
        let mut seen = |by1: Var, by2: Var| {
            let (felt, seen) = (of.tape.dot(errors, by1), of.tape.dot_turned(x, by2));
            let (felt, seen) = (of.tape.mul(act, felt), of.tape.mul(delta, seen));
            let sum = of.tape.add(felt, seen);
            of.values(sum).chunks(m).map(|row| row.iter().sum::<f64>()).collect::<Vec<f64>>()
        };
        let (by_psi, by_phi) = (seen(after[0], after[1]), seen(after[2], after[3]));
        let along = |a: Var, b: Var| of.values(a).iter().zip(of.values(b)).map(|(a, b)| a * b).sum::<f64>();
        for (name, values) in [
            ("dpsi_end", by_psi.into_iter().map(|by| -by).collect()),
            ("dphi_end", by_phi),
            ("dlam_end", vec![along(after[0], state[0]) + along(after[1], state[1])]),
            ("dold_end", vec![-along(after[0], state[2]) - along(after[1], state[3])]),
            ("dbeta_end", vec![along(after[2], state[2]) + along(after[3], state[3])]),
        ] {
            out.entry(name).or_default().extend(values);
        }
    }
    out
}

fn keys(mut of: GivenHead<'_>) -> Head {
    let [d, m] = ["D", "M"].map(|dim| of.p.dim(dim));
    let mut by_key = vec![];
    for c in 0..of.dim("C") {
        let delta = of.part("factors", m, c, DELTA);
        let (by_w, by_s) = (of.weighed(delta, "psi_end", c, -1.0), of.weighed(delta, "phi_end", c, 1.0));
        let by_z = of.chunk("dzs", m, c);
        let [dw, ds, w] = ["dw2_after", "ds2_after", "w2"].map(|name| of.chunk(name, d, c));
        let mut sum = of.chunk("by_key", d, c);
        for (rows, matrix) in [(by_w, dw), (by_s, ds), (by_z, w)] {
            let product = of.tape.dot(rows, matrix);
            sum = of.tape.add(sum, product);
        }
        by_key.extend(of.values(sum));
    }
    [("by_key", by_key)].into()
}

/// Operations of one launch.
fn flops(p: &Problem) -> f64 {
    let of = |name: &str| p.dim(name) as f64;
    let heads = of("B") * of("H");
    let has_next = p.scalar("at") as usize + 1 < p.dim("C");
    match p.kernel.name {
        "omega_mlp_split_states" => 2.0 * heads * of("K") * of("M") * of("D"),
        "omega_mlp_split_state_errors" => 2.0 * heads * of("K") * of("M") * of("E"),
        "omega_mlp_split_next_state" if has_next => 6.0 * heads * of("K") * of("M") * (of("E") + of("D")),
        "omega_mlp_split_back_start" => 4.0 * heads * of("M") * of("K") * (of("E") + of("D") + of("L")),
        "omega_mlp_split_back_errors" => 6.0 * heads * of("K") * of("M") * of("E"),
        "omega_mlp_split_back" => {
            let (by_keys, by_tokens) = (10.0 * of("E") + 6.0 * of("D") + 4.0 * of("L"), 4.0 * (of("E") + of("D")));
            heads * of("M") * (of("K") * by_keys + of("L") * by_tokens)
        }
        "omega_mlp_split_ends" => 4.0 * heads * of("C") * of("K") * of("M") * (of("E") + of("D")),
        "omega_mlp_split_keys" => 6.0 * heads * of("C") * of("K") * of("M") * of("D"),
        _ => 0.0,
    }
}
