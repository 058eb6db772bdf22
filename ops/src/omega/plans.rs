//! The Omega rule as it is measured: a whole sequence, and a step of Muon.

use super::check::Case;
use super::reference::{self, State};
use super::rounded::Arithmetic;
use super::{Chunking, OmegaRule, StreamSizes, fused_optimization, open_chunk, room};
use crate::compare::Comparison;
use crate::plan::{Plan, PlanSizes, Steps, Work, heads_of};
use crate::run::plan_tensor;
use crate::usual::unit;
use atlas_dsl::DType;
use atlas_runtime::{Arg, Device, Launch, Result, Tensor, args};

pub(crate) const PLANS: &[Plan] = &[
    Plan::new("omega_mlp_plan", &OMEGA, [128, 2048, 64, 256, 64, 16]),
    Plan::new("omega_mlp_plan_48", &OMEGA, [128, 2048, 48, 192, 64, 16]),
    Plan::new("omega_mlp_plan_few", &OMEGA, [16, 2048, 64, 256, 64, 16]),
    Plan::new("omega_mlp_plan_96", &OMEGA, [64, 2048, 96, 384, 64, 16]),
    Plan::new("omega_mlp_plan_short", &OMEGA, [128, 2048, 64, 256, 16, 4]),
    Plan::new("omega_muon_step_plan", &OPTIMIZATION, [128, 64, 64, 256]),
];

/// Sizes: groups, tokens, elements of a head, hidden elements, tokens of a chunk, tokens of a window.
static OMEGA: Steps = Steps {
    names: &["G", "T", "D", "M", "L", "W"],
    dtype: DType::Bf16,
    bound: 1e-2,
    bytes: |[g, t, d, m, _, w]| (g * (8 * t * d + 4 * t * (w + 3) + 32 * d * m)) as f64,
    flops: |[g, t, d, m, l, w]| {
        let (k, chunks) = (l + w - 1, t.div_ceil(l));
        (g * chunks * ((14 * k + 8 * l) * d * m + 4 * l * k * (d + m))) as f64
    },
    small: |[_, _, d, m, l, w]| [2, 2 * l + 5, d, m, l, w],
    start: omega,
    check: |device, [g, t, d, m, l, w]| {
        let case = Case { dtype: DType::Bf16, ..Case::new([1, t, g], [d, d, m], Chunking::new(l, w)) };
        case.check(device)
    },
};

/// Sizes: groups, tokens, elements, hidden elements.
static OPTIMIZATION: Steps = Steps {
    names: &["G", "N", "D", "M"],
    dtype: DType::Bf16,
    bound: 3e-2,
    bytes: |[g, n, d, m, ..]| (g * (32 * d * m + 4 * n * d + 4 * n)) as f64,
    flops: |[g, n, d, m, ..]| (g * (10 * n * d * m + 2 * (20 * d * d * m + 10 * d * d * d) + 4 * 2 * d * m)) as f64,
    small: |[_, n, d, m, ..]| [2, n, d, m, 0, 0],
    start: |device, sizes| Ok(window(device, sizes)?.optimization()),
    check: |device, sizes| window(device, sizes)?.check_optimization(),
};

/// The chain of the Omega rule; the memory goes on from run to run, with steps so short that it stays as it is.
fn omega(device: &Device, [g, t, d, m, l, w]: PlanSizes) -> Result<Work> {
    let (heads, chunking) = (heads_of(g), Chunking::new(l, w));
    let b = g / heads;
    let of = |dtype, name: &str, fill, sizes: &[usize]| plan_tensor(device, dtype, name, fill, sizes);
    let token = |name: &str| of(DType::Bf16, name, (0.0, unit(d)), &[b, t, heads, d]);
    let gate = |name: &str, mean: f64| of(DType::F32, name, (mean, mean / 20.0), &[b, t, heads]);
    let (q, k, v) = (token("q")?, token("k")?, token("v")?);
    let gates = [gate("alpha", 0.95)?, gate("theta", 0.8)?, gate("eta", 1e-5)?];
    let gamma = of(DType::F32, "gamma", (0.5, 0.1), &[b, t, heads, w])?;
    let matrix =
        |name: &str, sd: f64, rows: usize, cols: usize| of(DType::F32, name, (0.0, sd), &[b, heads, rows, cols]);
    let mut state = [
        matrix("w1", unit(m), d, m)?,
        matrix("w2", unit(d), m, d)?,
        matrix("s1", 0.01, d, m)?,
        matrix("s2", 0.01, m, d)?,
    ];
    let mut y = Tensor::zeros(device, DType::Bf16, [b, t, heads, d])?;
    let rule = OmegaRule::omega_net(chunking);
    let sizes = StreamSizes { sequences: b, heads, key: d, value: d, piece: t, dtype: DType::Bf16 };
    // As streams choose.
    let chain = room::chain_with(room::chain_on(device, &rule, &sizes)?, device, &rule, &sizes, m);
    let mut space = open_chunk::workspace(chain, &chunking, device, DType::Bf16, [b, heads, d, d, m, t])?;
    let chunks = chunking.chunks(t) as i32;
    let mut prepared = None;
    let device = device.clone();
    Ok(Box::new(move || {
        let [w1, w2, s1, s2] = &mut state;
        let [alpha, theta, eta] = &gates;
        let mut all: Vec<Arg<'_>> = [alpha, theta, eta, &gamma].map(Arg::In).into();
        all.extend([Arg::I32(0), Arg::I32(chunks)]);
        all.extend([&q, &k, &v, &q, &k].map(Arg::In));
        all.extend([w1, w2, s1, s2, &mut y].map(Arg::Out));
        all.extend([Arg::F32(2.0), Arg::I32(1)]);
        if prepared.is_none() {
            prepared = Some(chain.prepare(&device, &mut all[..], &mut space)?);
        }
        match &prepared {
            Some(prepared) => prepared.launch(&mut all[..], &mut space),
            None => Ok(()),
        }
    }))
}

/// A memory and a window of tokens, for its gradients or a step.
pub(crate) struct Window {
    pub(crate) device: Device,
    pub(crate) sizes: [usize; 4],
    pub(crate) x: Tensor,
    pub(crate) v: Tensor,
    pub(crate) c: Tensor,
    /// `W1` `[G, D, M]` and `W2` `[G, M, D]`.
    pub(crate) w1: Tensor,
    pub(crate) w2: Tensor,
}

pub(crate) fn window(device: &Device, [g, n, d, m, ..]: PlanSizes) -> Result<Window> {
    let of = |dtype, name: &str, fill, sizes: &[usize]| plan_tensor(device, dtype, name, fill, sizes);
    Ok(Window {
        device: device.clone(),
        sizes: [g, n, d, m],
        x: of(DType::Bf16, "x", (0.0, 1.0), &[g, n, d])?,
        v: of(DType::Bf16, "v", (0.0, 1.0), &[g, n, d])?,
        c: of(DType::F32, "c", (0.5, 0.1), &[g, n])?,
        w1: of(DType::Bf16, "w1", (0.0, unit(m)), &[g, d, m])?,
        w2: of(DType::Bf16, "w2", (0.0, unit(d)), &[g, m, d])?,
    })
}

/// What a step writes: `W1`, `W2`, `S1`, `S2` and the loss.
struct Stepped([Tensor; 4], Tensor);

impl Window {
    fn stepped(&self) -> Result<Stepped> {
        let [g, _, d, m] = self.sizes;
        let of = |name: &str, sd: f64, rows: usize| {
            plan_tensor(&self.device, DType::F32, name, (0.0, sd), &[g, rows, d * m / rows])
        };
        let loss = Tensor::zeros(&self.device, DType::F32, [g])?;
        Ok(Stepped([of("w1", unit(m), d)?, of("w2", unit(d), m)?, of("s1", 4.0, d)?, of("s2", 4.0, m)?], loss))
    }

    /// Gates of a step, the same for all groups.
    fn gates(&self) -> Result<[Tensor; 3]> {
        let gate = |value: f32| self.device.tensor_from(&[value], [1])?.expand([self.sizes[0]]);
        Ok([gate(ALPHA)?, gate(THETA)?, gate(ETA)?])
    }

    fn launch_step(&self, [alpha, theta, eta]: &[Tensor; 3], to: &mut Stepped) -> Result<()> {
        let Window { x, v, c, .. } = self;
        let Stepped([w1, w2, s1, s2], loss) = to;
        fused_optimization.launch(
            &self.device,
            args!(x, v, x, c, alpha, theta, eta, &mut *w1, &mut *w2, &mut *s1, &mut *s2, &mut *loss, 2.0, 1, 5),
        )
    }

    fn optimization(self) -> Work {
        let mut to = None;
        Box::new(move || {
            if to.is_none() {
                to = Some((self.gates()?, self.stepped()?));
            }
            match &mut to {
                Some((gates, to)) => self.launch_step(gates, to),
                None => Ok(()),
            }
        })
    }

    /// Weights and momenta after one step of f64, group by group.
    pub(crate) fn expected(&self, start: [&[f64]; 4], gates: [f64; 3], count: usize) -> Result<[Vec<f64>; 4]> {
        let [g, n, d, m] = self.sizes;
        let s = reference::SequenceSizes { n, p: n, h: 1, d, e: d, m, l: n, w: 1, k: n };
        let [x, v, c] = [&self.x, &self.v, &self.c].map(Tensor::to_f64_vec);
        let (x, v, c) = (x?, v?, c?);
        let mut after: [Vec<f64>; 4] = Default::default();
        for at in 0..g {
            let part = |i: usize| start[i][at * d * m..][..d * m].to_vec();
            let mut state = State { w: vec![part(0), part(1)], s: vec![part(2), part(3)] };
            let rows = |x: &[f64]| x[at * n * d..][..n * d].to_vec();
            let (xs, vs) = (rows(&x), rows(&v));
            let how = (&OmegaRule::omega_net(Chunking::new(n, 1)), (count > 0).then_some(count));
            Arithmetic::of(DType::F64).step(&s, how, [&xs, &vs, &xs], &c[at * n..][..n], gates, &mut state);
            after.iter_mut().zip(state.w.into_iter().chain(state.s)).for_each(|(to, from)| to.extend(from));
        }
        Ok(after)
    }

    fn check_optimization(self) -> Result<Comparison> {
        let mut to = self.stepped()?;
        let mut start = Vec::new();
        for t in &to.0 {
            start.push(t.to_f64_vec()?);
        }
        self.launch_step(&self.gates()?, &mut to)?;
        let gates = [ALPHA, THETA, ETA].map(f64::from);
        let wanted = self.expected([&start[0], &start[1], &start[2], &start[3]], gates, 5)?;
        let mut found = Vec::new();
        for t in &to.0 {
            found.push(t.to_f64_vec()?);
        }
        Ok(Comparison::of_all(found.iter().map(Vec::as_slice).zip(wanted.iter().map(Vec::as_slice))))
    }
}

/// Gates of a step.
const ALPHA: f32 = 0.95;
const THETA: f32 = 0.9;
const ETA: f32 = 0.02;
