//! The Omega rule in f64 on a tape, twice: token by token as it is defined, and the parts of a chunk that the kernels compute.
//!
//! Only the rule is written down here. Its gradients are the tape's, so nothing of the kernels' derivation is repeated.

use super::tape::{Matrix, Tape, Var};
use crate::newton_schulz_small::{CLASSIC, EPS};
use crate::omega::reference::SequenceSizes;

/// The weights of a memory, or its momenta: `W1` `[E, M]`, then `W2` and `W3` `[M, D]`; of a linear one `W` `[E, D]` alone.
pub type Weights = Vec<Var>;

/// Weights and momenta.
#[derive(Clone, Debug)]
pub struct MemoryState {
    /// Weights.
    pub w: Weights,
    /// Momenta.
    pub s: Weights,
}

impl MemoryState {
    /// Weights, then momenta, of these columns and elements.
    pub fn given(tape: &mut Tape, matrices: &[Matrix]) -> MemoryState {
        let (w, s) = matrices.split_at(matrices.len() / 2);
        let mut of = |m: &[Matrix]| m.iter().map(|m| tape.given(m.clone())).collect();
        MemoryState { w: of(w), s: of(s) }
    }

    /// Weights, then momenta.
    pub fn all(&self) -> impl Iterator<Item = Var> {
        self.w.iter().chain(&self.s).copied()
    }
}

/// A norm inside a memory, between the products and the residual.
#[derive(Clone, Copy, Debug)]
pub struct Norm {
    /// Its weight, `[1, E]`.
    pub weight: Var,
    /// Added to the variance before its root.
    pub eps: f64,
}

/// What a memory is trained for, and what is inside it besides its matrices.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// The factor of the error.
    pub scale: f64,
    /// Whether what the memory makes of a key is part of the error.
    pub predicts: bool,
    /// A norm inside the memory.
    pub norm: Option<Norm>,
    /// Whether a chunk takes one orthogonalised step.
    pub by_chunk: bool,
}

/// What the gradients of some keys are made of: `errors^T act` of the first matrix, `delta^T x` of each other one.
pub struct KeyFactors {
    /// What the first matrix is applied to.
    pub act: Var,
    /// The gradients by what the first matrix makes.
    pub errors: Var,
    /// The gradients by what each other matrix makes.
    pub deltas: Vec<Var>,
}

/// What keys give: their factors, and what these come from.
pub struct Keys {
    /// The factors.
    pub factors: KeyFactors,
    /// What the first matrix makes.
    pub made: Var,
    /// The gradients by what the memory makes: those behind its norm, if it has one.
    pub outer: Var,
}

/// What rows `x` give with all matrices but the first.
pub fn products(tape: &mut Tape, w: &[Var], x: Var) -> Vec<Var> {
    w[1..].iter().map(|&w| tape.dot_turned(x, w)).collect()
}

/// What the first matrix is applied to, from these products of rows `x`.
pub fn hidden(tape: &mut Tape, x: Var, products: &[Var]) -> Var {
    match *products {
        [z] => tape.gelu(z),
        [z, u] => {
            let a = tape.gelu(z);
            tape.mul(a, u)
        }
        _ => x,
    }
}

/// Its derivative by each of the products.
pub fn slopes(tape: &mut Tape, products: &[Var]) -> Vec<Var> {
    match *products {
        [z] => vec![tape.gelu_slope(z)],
        [z, u] => {
            let slope = tape.gelu_slope(z);
            vec![tape.mul(slope, u), tape.gelu(z)]
        }
        _ => vec![],
    }
}

/// The mean of each row.
fn means(tape: &mut Tape, x: Var) -> Var {
    let cols = tape.value(x).cols;
    let part = tape.given(Matrix::new(1, vec![1.0 / cols as f64; cols]));
    tape.dot(x, part)
}

/// Rows less their mean and divided by their deviation, and one over the deviation of each.
fn normed(tape: &mut Tape, x: Var, eps: f64) -> [Var; 2] {
    let mean = means(tape, x);
    let centred = tape.sub(x, mean);
    let squares = tape.mul(centred, centred);
    let variance = means(tape, squares);
    let eps = tape.given(Matrix::new(1, vec![eps]));
    let sum = tape.add(variance, eps);
    let by = tape.power(sum, -0.5);
    [tape.mul(centred, by), by]
}

/// What a memory makes of rows, before the residual, from what its first matrix makes.
pub fn outward(tape: &mut Tape, made: Var, norm: Option<Norm>) -> Var {
    let Some(Norm { weight, eps }) = norm else { return made };
    let [unit, _] = normed(tape, made, eps);
    tape.mul(unit, weight)
}

/// The gradient by what goes into a norm from the one by what comes out, before its weight: the product with its Jacobian.
pub fn before_norm(tape: &mut Tape, made: Var, g: Var, eps: f64) -> Var {
    let [unit, by] = normed(tape, made, eps);
    let along = tape.mul(g, unit);
    let (mean, along) = (means(tape, g), means(tape, along));
    let (centred, off) = (tape.sub(g, mean), tape.mul(unit, along));
    let through = tape.sub(centred, off);
    tape.mul(through, by)
}

/// What keys `x` with values `v` and residuals `r` give.
pub fn keys(tape: &mut Tape, w: &[Var], x: Var, [v, r]: [Var; 2], how: &How) -> Keys {
    let products = products(tape, w, x);
    let act = hidden(tape, x, &products);
    let made = tape.dot_turned(act, w[0]);
    let mut error = tape.scale(v, -1.0);
    if how.predicts {
        let out = outward(tape, made, how.norm);
        let read = tape.add(out, r);
        error = tape.add(read, error);
    }
    let outer = tape.scale(error, how.scale);
    let errors = match how.norm {
        Some(Norm { weight, eps }) => {
            let g = tape.mul(outer, weight);
            before_norm(tape, made, g, eps)
        }
        None => outer,
    };
    let back = tape.dot(errors, w[0]);
    let deltas = slopes(tape, &products).into_iter().map(|slope| tape.mul(slope, back)).collect();
    Keys { factors: KeyFactors { act, errors, deltas }, made, outer }
}

/// The sum of the keys' gradients, each times its weight `[K, 1]`.
fn gradients(tape: &mut Tape, f: &KeyFactors, x: Var, weight: Var) -> Weights {
    let errors = tape.mul(f.errors, weight);
    let mut all = vec![tape.turned_dot(errors, f.act)];
    for &delta in &f.deltas {
        let delta = tape.mul(delta, weight);
        all.push(tape.turned_dot(delta, x));
    }
    all
}

/// `a x + b y`, matrix by matrix, of scalars `a` and `b` `[1, 1]`.
fn combined(tape: &mut Tape, (a, x): (Var, &Weights), (b, y): (Var, &Weights)) -> Weights {
    let mut of = |(&x, &y): (&Var, &Var)| {
        let (x, y) = (tape.mul(a, x), tape.mul(b, y));
        tape.add(x, y)
    };
    x.iter().zip(y).map(&mut of).collect()
}

fn difference(tape: &mut Tape, x: &Weights, y: &Weights) -> Weights {
    x.iter().zip(y).map(|(&x, &y)| tape.sub(x, y)).collect()
}

/// The scalars of a chunk's end, `[1, 1]` each, and the weights of its keys, `[K, 1]`.
pub struct End {
    /// What is kept of the weights.
    pub lam: Var,
    /// What of the momentum is in the weights.
    pub old: Var,
    /// What is kept of the momentum.
    pub beta: Var,
    /// Weights of gradients in the weights.
    pub psi: Var,
    /// Weights of gradients in the momentum.
    pub phi: Var,
}

/// The state after a chunk.
pub fn after(tape: &mut Tape, state: &MemoryState, f: &KeyFactors, x: Var, end: &End) -> MemoryState {
    let less_old = tape.scale(end.old, -1.0);
    let kept = combined(tape, (end.lam, &state.w), (less_old, &state.s));
    let step = gradients(tape, f, x, end.psi);
    let w = difference(tape, &kept, &step);
    let taken = gradients(tape, f, x, end.phi);
    let one = tape.given(Matrix::new(1, vec![1.0]));
    let s = combined(tape, (end.beta, &state.s), (one, &taken));
    MemoryState { w, s }
}

/// How a chunk's queries are read.
pub struct Mixing {
    /// `[L, K]`.
    pub psi: Var,
    /// `[L, 1]`.
    pub lam: Var,
    /// `[L, 1]`.
    pub old: Var,
}

/// What a chunk's queries read, and what is between.
pub struct ReadOut {
    /// What the first matrix makes, `[L, E]`.
    pub made: Var,
    /// The products of what queries and keys give the first matrix, `[L, K]`.
    pub met: Var,
    /// The products of queries and keys times their weights, and -1.
    pub mixed: Var,
    /// What queries give with all matrices but the first, `[L, M]` each.
    pub products: Vec<Var>,
    /// What the first matrix is applied to.
    pub act: Var,
}

/// A matrix after each token, applied to a row of that token.
pub struct Applied {
    /// The rows that come out.
    pub y: Var,
    /// The products of rows and keys, `[L, K]`.
    pub met: Var,
    /// The same times their weights, and -1.
    pub mixed: Var,
}

/// Matrix `i` of the state after each token, where gradients `values^T keys` have been taken off, applied to that token's row.
pub fn applied(
    tape: &mut Tape,
    state: &MemoryState,
    i: usize,
    rows: Var,
    [keys, values]: [Var; 2],
    by: &Mixing,
) -> Applied {
    let (w, s) = (tape.dot_turned(rows, state.w[i]), tape.dot_turned(rows, state.s[i]));
    let (w, s) = (tape.mul(by.lam, w), tape.mul(by.old, s));
    let start = tape.sub(w, s);
    let met = tape.dot_turned(rows, keys);
    let weighted = tape.mul(met, by.psi);
    let mixed = tape.scale(weighted, -1.0);
    let step = tape.dot(mixed, values);
    Applied { y: tape.add(start, step), met, mixed }
}

/// What queries `xq` read of the memory as it is after their tokens.
pub fn read(tape: &mut Tape, state: &MemoryState, f: &KeyFactors, x: Var, xq: Var, by: &Mixing) -> ReadOut {
    let inner: Vec<Applied> =
        f.deltas.iter().enumerate().map(|(i, &delta)| applied(tape, state, i + 1, xq, [x, delta], by)).collect();
    let products: Vec<Var> = inner.iter().map(|inner| inner.y).collect();
    let act = hidden(tape, xq, &products);
    let outer = applied(tape, state, 0, act, [f.act, f.errors], by);
    let mixed = inner.first().unwrap_or(&outer).mixed;
    ReadOut { made: outer.y, met: outer.met, mixed, products, act }
}

/// The inputs of one head on a tape.
#[derive(Clone, Copy, Debug)]
pub struct HeadInputs {
    /// `[N, D]`.
    pub q: Var,
    /// `[P, D]`.
    pub k: Var,
    /// `[P, E]`.
    pub v: Var,
    /// `[N, E]`.
    pub rq: Var,
    /// `[P, E]`.
    pub rk: Var,
    /// `[N, 1]`.
    pub alpha: Var,
    /// `[N, 1]`.
    pub theta: Var,
    /// `[N, 1]`.
    pub eta: Var,
    /// `[N, W]`, the oldest token of the window first.
    pub gamma: Var,
}

/// The same value, through which no gradient goes.
fn alone(tape: &mut Tape, x: Var) -> Var {
    let value = tape.value(x).clone();
    tape.given(value)
}

/// The momentum as a step takes it.
pub fn orthogonalised(tape: &mut Tape, s: Var) -> Var {
    let Matrix { rows, cols, .. } = *tape.value(s);
    if rows <= cols {
        return iterates(tape, s)[5];
    }
    let wide = tape.turn(s);
    let last = iterates(tape, wide)[5];
    tape.turn(last)
}

/// A matrix that lies wide, divided by its norm, and after each of five iterations of Newton and Schulz.
pub fn iterates(tape: &mut Tape, x: Var) -> Vec<Var> {
    let Matrix { rows, cols, .. } = *tape.value(x);
    let ones = |len: usize| vec![1.0; len];
    let squares = tape.mul(x, x);
    let (left, right) = (tape.given(Matrix::new(rows, ones(rows))), tape.given(Matrix::new(1, ones(cols))));
    let sums = tape.dot(left, squares);
    let sum = tape.dot(sums, right);
    let (length, eps) = (tape.power(sum, 0.5), tape.given(Matrix::new(1, vec![EPS.into()])));
    let norm = tape.add(length, eps);
    let by = tape.power(norm, -1.0);
    let mut x = tape.mul(x, by);
    let mut all = vec![x];
    let [a, b, c] = CLASSIC;
    for _ in 0..5 {
        let gram = tape.dot_turned(x, x);
        let square = tape.dot(gram, gram);
        let (linear, square) = (tape.scale(gram, b), tape.scale(square, c));
        let poly = tape.add(linear, square);
        let (through, kept) = (tape.dot(poly, x), tape.scale(x, a));
        x = tape.add(kept, through);
        all.push(x);
    }
    all
}

/// What a backward pass may forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// Nothing.
    Nothing,
    /// That keys before a chunk are part of its windows.
    Halo,
    /// That a chunk starts with the state after the one before.
    State,
    /// That it starts with the momentum after the one before.
    Momentum,
    /// That the errors of keys depend on the weights.
    Errors,
    /// That a step of a chunk depends on the momentum.
    Step,
}

/// One head, token by token, by definition. Gives what each token reads, `[1, E]`, and the memory after the last one. Gradients do
/// not go through what is `forgotten`.
pub fn recurrence(
    tape: &mut Tape,
    s: &SequenceSizes,
    x: &HeadInputs,
    start: &MemoryState,
    (how, before): (&How, bool),
    forgotten: Forgotten,
) -> (Vec<Var>, MemoryState) {
    let (past, mut state, mut out) = (s.p - s.n, start.clone(), vec![]);
    for c in 0..s.n.div_ceil(s.l) {
        let tokens = c * s.l..((c + 1) * s.l).min(s.n);
        // The place of key `i` of the chunk in the window of token `t`.
        let place = |t: usize, i: usize| {
            let back = (t + s.k).checked_sub(c * s.l + s.l + i)?;
            (back < s.w).then(|| t * s.w + s.w - 1 - back)
        };
        let weight = |tape: &Tape, t: usize, i: usize| place(t, i).map_or(0.0, |at| tape.value(x.gamma).values[at]);
        // A token that nothing weighs is not looked at.
        let seen: Vec<Option<usize>> = (0..s.k)
            .map(|i| {
                let at = (c * s.l + past + s.l + i).checked_sub(s.k).filter(|&at| at < s.p)?;
                tokens.clone().any(|t| weight(tape, t, i) != 0.0).then_some(at)
            })
            .collect();
        let [k, v, rk] = [x.k, x.v, x.rk].map(|of| {
            let all = tape.rows(of, seen.iter().copied());
            if forgotten != Forgotten::Halo {
                return all;
            }
            let (halo, own) = seen.split_at(s.k - s.l);
            let halo = tape.rows(of, halo.iter().copied().chain(own.iter().map(|_| None)));
            let halo = alone(tape, halo);
            let own = tape.rows(of, (0..s.k - s.l).map(|_| None).chain(own.iter().copied()));
            tape.add(halo, own)
        });
        if forgotten == Forgotten::State {
            state.w = state.w.iter().map(|&w| alone(tape, w)).collect();
        }
        if [Forgotten::State, Forgotten::Momentum].contains(&forgotten) {
            state.s = state.s.iter().map(|&s| alone(tape, s)).collect();
        }
        let anchor = match forgotten {
            Forgotten::Errors => state.w.iter().map(|&w| alone(tape, w)).collect(),
            _ => state.w.clone(),
        };
        let f = keys(tape, &anchor, k, [v, rk], how).factors;
        let mut kept = tape.given(Matrix::new(1, vec![1.0]));
        let mut last = kept;
        for t in tokens {
            let [xq, rq, alpha, theta, eta] = [x.q, x.rq, x.alpha, x.theta, x.eta].map(|of| tape.rows(of, [Some(t)]));
            let mut look = |tape: &mut Tape, w: &Weights| {
                let products = products(tape, w, xq);
                let act = hidden(tape, xq, &products);
                let made = tape.dot_turned(act, w[0]);
                let y = outward(tape, made, how.norm);
                out.push(tape.add(y, rq));
            };
            if before {
                look(tape, &state.w);
            }
            let window = tape.gather(x.gamma, 1, (0..s.k).map(|i| place(t, i)).collect());
            let u = gradients(tape, &f, k, window);
            let one = tape.given(Matrix::new(1, vec![1.0]));
            let momentum = combined(tape, (theta, &state.s), (one, &u));
            if how.by_chunk {
                (kept, last) = (tape.mul(kept, alpha), eta);
                state.s = momentum;
                continue;
            }
            let step = tape.scale(eta, -1.0);
            let w = combined(tape, (alpha, &state.w), (step, &momentum));
            state = MemoryState { w, s: momentum };
            if !before {
                look(tape, &state.w);
            }
        }
        if how.by_chunk {
            let mut along: Weights = state.s.iter().map(|&s| orthogonalised(tape, s)).collect();
            if forgotten == Forgotten::Step {
                along = along.into_iter().map(|x| alone(tape, x)).collect();
            }
            let step = tape.scale(last, -1.0);
            state.w = combined(tape, (kept, &state.w), (step, &along));
        }
    }
    (out, state)
}

/// The mixing weights of one chunk after each of its tokens, by the recurrence over rows.
pub struct Rows {
    /// `[1, K]` each.
    pub phi: Vec<Var>,
    /// `[1, K]` each.
    pub psi: Vec<Var>,
    /// `[1, 1]` each.
    pub beta: Vec<Var>,
    /// `[1, 1]` each.
    pub lam: Vec<Var>,
    /// `[1, 1]` each.
    pub old: Vec<Var>,
    /// Before the first token: `psi`, `lam` and `old`.
    pub start: [Var; 3],
}

/// The rows of chunk `c`, from gates `[N, 1]` and `[N, W]`.
pub fn rows(tape: &mut Tape, s: &SequenceSizes, [alpha, theta, eta, gamma]: [Var; 4], c: usize) -> Rows {
    let nothing = tape.given(Matrix::new(s.k, vec![0.0; s.k]));
    let [zero, one] = [0.0, 1.0].map(|value| tape.given(Matrix::new(1, vec![value])));
    let mut rows =
        Rows { phi: vec![], psi: vec![], beta: vec![], lam: vec![], old: vec![], start: [nothing, one, zero] };
    let (mut phi, mut psi, mut beta, mut lam, mut old) = (nothing, nothing, one, one, zero);
    for n in 0..s.l {
        let t = c * s.l + n;
        let inside = t < s.n;
        let [a, th, et] = [(alpha, one), (theta, one), (eta, zero)]
            .map(|(of, beyond)| if inside { tape.rows(of, [Some(t)]) } else { beyond });
        let place = |i: usize| {
            let back = (n + s.k).checked_sub(s.l + i).filter(|&back| back < s.w && inside)?;
            Some(t * s.w + s.w - 1 - back)
        };
        let band = tape.gather(gamma, s.k, (0..s.k).map(place).collect());
        let sum = |tape: &mut Tape, (f, x): (Var, Var), (g, y): (Var, Var)| {
            let (x, y) = (tape.mul(f, x), tape.mul(g, y));
            tape.add(x, y)
        };
        phi = sum(tape, (th, phi), (one, band));
        psi = sum(tape, (a, psi), (et, phi));
        beta = tape.mul(th, beta);
        lam = tape.mul(a, lam);
        old = sum(tape, (a, old), (et, beta));
        rows.phi.push(phi);
        rows.psi.push(psi);
        rows.beta.push(beta);
        rows.lam.push(lam);
        rows.old.push(old);
    }
    rows
}
