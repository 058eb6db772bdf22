//! Ops of several launches, as `atlas bench` measures them: all of the launches, on tensors that are made before.
//!
//! Each plan is checked against its f64 reference on a smaller problem of the same sizes of heads, chunks and windows, by the
//! same launches on the same device.

use crate::attention_decode::{self, ATTENTION_DECODE};
use crate::compare::Comparison;
use crate::memory_grad::MEMORY_GRAD;
use crate::muon::{Muon, MuonMatrix, MuonSpaces, NewtonSchulz, StepScale};
use crate::omega::check::Case;
use crate::omega::reference::{Sizes, State};
use crate::omega::rounded::Arithmetic;
use crate::omega::{Chunking, OMEGA_MLP, fused_optimization};
use crate::problem::{HostTensor, normal, round};
use crate::run::upload;
use crate::window_sums::WINDOW_LOSS;
use atlas_dsl::DType;
use atlas_runtime::{Arg, Device, Launch, Result, Stream, Tensor, Workspace, args};

/// The op of a plan, with its sizes.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Groups, tokens, elements of a head, hidden elements, tokens of a chunk, tokens of a window.
    Omega([usize; 6]),
    /// Groups, tokens, elements, hidden elements.
    Gradient([usize; 4]),
    /// The same.
    Optimization([usize; 4]),
    /// Matrices, rows, columns.
    Muon([usize; 3]),
    /// The same.
    MuonGram([usize; 3]),
    /// Sequences, heads of keys, queries of each, elements, slots, parts.
    Decode([usize; 6]),
    /// Sequences, tokens, elements, tokens of a window.
    Loss([usize; 4]),
}

/// An op of several launches at one size.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The name in records.
    pub name: &'static str,
    kind: Kind,
}

/// The plans that `atlas bench` measures.
pub const PLANS: [Plan; 12] = [
    Plan { name: "omega_mlp_plan", kind: Kind::Omega([128, 2048, 64, 256, 64, 16]) },
    Plan { name: "omega_mlp_plan_48", kind: Kind::Omega([128, 2048, 48, 192, 64, 16]) },
    Plan { name: "omega_mlp_plan_few", kind: Kind::Omega([16, 2048, 64, 256, 64, 16]) },
    Plan { name: "omega_mlp_plan_96", kind: Kind::Omega([64, 2048, 96, 384, 64, 16]) },
    Plan { name: "omega_mlp_plan_short", kind: Kind::Omega([128, 2048, 64, 256, 16, 4]) },
    Plan { name: "memory_grad_plan", kind: Kind::Gradient([512, 64, 64, 256]) },
    Plan { name: "memory_grad_plan_128x128", kind: Kind::Gradient([256, 128, 128, 512]) },
    Plan { name: "omega_muon_step_plan", kind: Kind::Optimization([128, 64, 64, 256]) },
    Plan { name: "muon_step_plan", kind: Kind::Muon([24, 1024, 4096]) },
    Plan { name: "muon_step_gram_plan", kind: Kind::MuonGram([24, 1024, 4096]) },
    Plan { name: "attention_decode_plan", kind: Kind::Decode([64, 8, 4, 128, 2048, 4]) },
    Plan { name: "window_loss_plan", kind: Kind::Loss([16, 8192, 512, 64]) },
];

/// Work that is ready to run: all of a plan's launches, queued on the device's default stream.
pub type Work = Box<dyn FnMut() -> Result<()>>;

impl Plan {
    /// Its sizes, as they are printed.
    pub fn shape(&self) -> String {
        let named = |names: &[&str], sizes: &[usize]| {
            names.iter().zip(sizes).map(|(n, s)| format!("{n}{s}")).collect::<Vec<_>>().join(" ")
        };
        match &self.kind {
            Kind::Omega(s) => named(&["G", "T", "D", "M", "L", "W"], s),
            Kind::Gradient(s) | Kind::Optimization(s) => named(&["G", "N", "D", "M"], s),
            Kind::Muon(s) | Kind::MuonGram(s) => named(&["B", "M", "N"], s),
            Kind::Decode(s) => named(&["S", "J", "R", "D", "W", "X"], s),
            Kind::Loss(s) => named(&["B", "N", "D", "W"], s),
        }
    }

    /// The element type of what a baseline would be given.
    pub fn dtype(&self) -> DType {
        if matches!(self.kind, Kind::Muon(_) | Kind::MuonGram(_)) { DType::F32 } else { DType::Bf16 }
    }

    /// Bytes that cannot but be moved.
    pub fn bytes(&self) -> f64 {
        match self.kind {
            Kind::Omega([g, t, d, m, _, w]) => (g * (8 * t * d + 4 * t * (w + 3) + 32 * d * m)) as f64,
            Kind::Gradient([g, n, d, m]) => (g * (4 * n * d + 4 * n + 12 * d * m)) as f64,
            Kind::Optimization([g, n, d, m]) => (g * (32 * d * m + 4 * n * d + 4 * n)) as f64,
            Kind::Muon([b, m, n]) | Kind::MuonGram([b, m, n]) => (20 * b * m * n) as f64,
            Kind::Decode([s, j, r, d, w, _]) => (4 * s * j * d * (w + r)) as f64,
            Kind::Loss([b, n, d, _]) => (b * n * (4 * d + 4)) as f64,
        }
    }

    /// Floating-point operations.
    pub fn flops(&self) -> f64 {
        match self.kind {
            Kind::Omega([g, t, d, m, l, w]) => {
                let (k, chunks) = (l + w - 1, t.div_ceil(l));
                (g * chunks * ((14 * k + 8 * l) * d * m + 4 * l * k * (d + m))) as f64
            }
            Kind::Gradient([g, n, d, m]) => (10 * g * n * d * m) as f64,
            Kind::Optimization([g, n, d, m]) => {
                (g * (10 * n * d * m + 2 * (20 * d * d * m + 10 * d * d * d) + 4 * 2 * d * m)) as f64
            }
            // Of symmetric products half.
            Kind::Muon([b, m, n]) => (b * (15 * m * m * n + 5 * m * m * m)) as f64,
            Kind::MuonGram([b, m, n]) => (b * (6 * m * m * n + 14 * m * m * m)) as f64,
            Kind::Decode([s, j, r, d, w, _]) => (4 * s * j * r * d * w) as f64,
            Kind::Loss([b, n, d, w]) => (b * n * (3 * d + w)) as f64,
        }
    }

    /// The bound on the relative error.
    pub fn bound(&self) -> f64 {
        match self.kind {
            Kind::Muon(_) | Kind::MuonGram(_) | Kind::Optimization(_) => 3e-2,
            Kind::Loss(_) => 4e-3,
            _ => 1e-2,
        }
    }

    /// The same on so little that a CPU solves it in a moment.
    #[must_use]
    pub fn small(&self) -> Plan {
        let kind = match self.kind {
            Kind::Omega([_, _, d, m, l, w]) => Kind::Omega([2, 2 * l + 5, d, m, l, w]),
            Kind::Gradient([_, n, d, m]) => Kind::Gradient([2, n, d, m]),
            Kind::Optimization([_, n, d, m]) => Kind::Optimization([2, n, d, m]),
            Kind::Muon(_) => Kind::Muon([2, 64, 256]),
            Kind::MuonGram(_) => Kind::MuonGram([2, 64, 256]),
            Kind::Decode([_, j, r, d, w, x]) => Kind::Decode([2, j, r, d, w, x]),
            Kind::Loss([_, _, d, w]) => Kind::Loss([2, 3 * w + 5, d, w]),
        };
        Plan { kind, ..*self }
    }

    /// Makes what the launches work on.
    ///
    /// # Errors
    /// Those of tensors, and of preparing launches.
    pub fn start(&self, device: &Device) -> Result<Work> {
        match self.kind {
            Kind::Omega(sizes) => omega(device, sizes),
            Kind::Gradient(sizes) => Ok(window(device, sizes)?.gradients()),
            Kind::Optimization(sizes) => Ok(window(device, sizes)?.optimization()),
            Kind::Muon(sizes) => muon(device, optimiser(), sizes),
            Kind::MuonGram(sizes) => muon(device, by_gram(), sizes),
            Kind::Decode(sizes) => Ok(decode(device, sizes)?.work()),
            Kind::Loss(sizes) => Ok(losses(device, sizes)?.work()),
        }
    }

    /// How far the launches are from the reference, on the plan's small problem.
    ///
    /// # Errors
    /// As [`Plan::start`]; those of launches.
    pub fn check(&self, device: &Device) -> Result<Comparison> {
        match self.small().kind {
            Kind::Omega([g, t, d, m, l, w]) => {
                let case = Case { dtype: DType::Bf16, ..Case::new([1, t, g], [d, d, m], Chunking::new(l, w)) };
                case.check(device)
            }
            Kind::Gradient(sizes) => window(device, sizes)?.check_gradients(),
            Kind::Optimization(sizes) => window(device, sizes)?.check_optimization(),
            Kind::Muon(sizes) => check_muon(device, optimiser(), sizes),
            Kind::MuonGram(sizes) => check_muon(device, by_gram(), sizes),
            Kind::Decode(sizes) => decode(device, sizes)?.check(),
            Kind::Loss(sizes) => losses(device, sizes)?.check(),
        }
    }
}

fn tensor(device: &Device, dtype: DType, name: &str, (mean, sd): (f64, f64), sizes: &[usize]) -> Result<Tensor> {
    let mut values = normal(&format!("plan {name} {sizes:?}"), mean, sd, sizes.iter().product());
    values.iter_mut().for_each(|v| *v = round(*v, dtype));
    upload(device, dtype, &HostTensor { sizes: sizes.to_vec(), values }, crate::Layout::Contiguous)
}

fn unit(width: usize) -> f64 {
    (width.max(1) as f64).powf(-0.5)
}

/// The chain of the Omega rule; the memory goes on from run to run, with steps so short that it stays as it is.
fn omega(device: &Device, [g, t, d, m, l, w]: [usize; 6]) -> Result<Work> {
    let (heads, chunking) = (g.min(16), Chunking::new(l, w));
    let b = g / heads;
    let of = |dtype, name: &str, fill, sizes: &[usize]| tensor(device, dtype, name, fill, sizes);
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
    let mut space = OMEGA_MLP.workspace(device, &[], &chunking.dims(b, heads, t))?;
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
        all.push(Arg::F32(2.0));
        if prepared.is_none() {
            prepared = Some(OMEGA_MLP.prepare(&device, &mut all[..], &mut space)?);
        }
        match &prepared {
            Some(prepared) => prepared.launch(&mut all[..], &mut space),
            None => Ok(()),
        }
    }))
}

/// A memory and a window of tokens, for its gradients or a step.
struct Window {
    device: Device,
    sizes: [usize; 4],
    x: Tensor,
    v: Tensor,
    c: Tensor,
    /// `W1` `[G, D, M]` and `W2`, which lies `[G, M, D]` for gradients and `[G, D, M]` for steps.
    w1: Tensor,
    w2: Tensor,
}

fn window(device: &Device, sizes: [usize; 4]) -> Result<Window> {
    let [g, n, d, m] = sizes;
    let of = |dtype, name: &str, fill, sizes: &[usize]| tensor(device, dtype, name, fill, sizes);
    Ok(Window {
        device: device.clone(),
        sizes,
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
    fn launch_gradients(&self, made: &mut [Tensor; 3], space: &mut Workspace) -> Result<()> {
        let Window { x, v, c, w1, w2, .. } = self;
        let [loss, dw2, dw1] = made;
        MEMORY_GRAD.launch(&self.device, args!(x, w2, w1, x, v, c, 2.0, &mut *loss, &mut *dw2, &mut *dw1), space)
    }

    fn made(&self) -> Result<([Tensor; 3], Workspace)> {
        let [g, n, d, m] = self.sizes;
        let zeros = |shape: &[usize]| Tensor::zeros(&self.device, DType::F32, shape);
        let dims = [("G", g), ("N", n), ("E", d)];
        let space = MEMORY_GRAD.workspace(&self.device, &[("T", DType::Bf16)], &dims)?;
        Ok(([zeros(&[g, n])?, zeros(&[g, m, d])?, zeros(&[g, d, m])?], space))
    }

    fn gradients(self) -> Work {
        let mut made = None;
        Box::new(move || {
            if made.is_none() {
                made = Some(self.made()?);
            }
            match &mut made {
                Some((made, space)) => self.launch_gradients(made, space),
                None => Ok(()),
            }
        })
    }

    fn stepped(&self) -> Result<Stepped> {
        let [g, _, d, m] = self.sizes;
        let of = |name: &str, sd: f64| tensor(&self.device, DType::F32, name, (0.0, sd), &[g, d, m]);
        let loss = Tensor::zeros(&self.device, DType::F32, [g])?;
        Ok(Stepped([of("w1", unit(m))?, of("w2 wide", unit(d))?, of("s1", 4.0)?, of("s2", 4.0)?], loss))
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
            args!(x, v, x, c, alpha, theta, eta, &mut *w1, &mut *w2, &mut *s1, &mut *s2, &mut *loss, 2.0, 5),
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
    fn expected(&self, start: [&[f64]; 4], gates: [f64; 3], count: usize) -> Result<[Vec<f64>; 4]> {
        let [g, n, d, m] = self.sizes;
        let s = Sizes { n, p: n, h: 1, d, e: d, m, l: n, w: 1, k: n };
        let [x, v, c] = [&self.x, &self.v, &self.c].map(Tensor::to_f64_vec);
        let (x, v, c) = (x?, v?, c?);
        let mut after: [Vec<f64>; 4] = Default::default();
        for at in 0..g {
            let part = |i: usize| start[i][at * d * m..][..d * m].to_vec();
            let mut state = State { w: [part(0), part(1)], s: [part(2), part(3)] };
            let rows = |x: &[f64]| x[at * n * d..][..n * d].to_vec();
            let (xs, vs) = (rows(&x), rows(&v));
            let iteration = (2.0, (count > 0).then_some(count));
            Arithmetic::of(DType::F64).step(&s, [&xs, &vs, &xs], &c[at * n..][..n], gates, &mut state, iteration);
            after.iter_mut().zip(state.w.into_iter().chain(state.s)).for_each(|(to, from)| to.extend(from));
        }
        Ok(after)
    }

    fn check_gradients(self) -> Result<Comparison> {
        let [g, _, d, m] = self.sizes;
        let (mut made, mut space) = self.made()?;
        self.launch_gradients(&mut made, &mut space)?;
        let turned = |x: &[f64], rows: usize| -> Vec<f64> {
            let cols = d * m / rows;
            x.chunks(d * m).flat_map(|x| (0..d * m).map(move |i| x[i % rows * cols + i / rows])).collect()
        };
        let none = vec![0.0; g * d * m];
        let (w1, w2) = (self.w1.to_f64_vec()?, turned(&self.w2.to_f64_vec()?, m));
        // A momentum that keeps nothing is the gradient itself.
        let [_, _, by1, by2] = self.expected([&w1, &w2, &none, &none], [1.0, 0.0, 0.0], 0)?;
        let (dw2, dw1) = (turned(&made[1].to_f64_vec()?, m), made[2].to_f64_vec()?);
        Ok(Comparison::of_all([(&dw1[..], &by1[..]), (&dw2[..], &by2[..])]))
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

/// The optimiser as torch has it: a momentum that is a mean, and looks ahead.
fn optimiser() -> Muon {
    Muon {
        iteration: NewtonSchulz::classic(),
        rate: 0.02,
        momentum: 0.95,
        nesterov: true,
        mean: true,
        decay: 0.1,
        scale: StepScale::Tall,
        dtype: DType::Bf16,
    }
}

/// The same in the form of Gram and in f16, which is as accurate.
fn by_gram() -> Muon {
    let usual = optimiser();
    Muon { iteration: usual.iteration.gram(), dtype: DType::F16, ..usual }
}

fn matrices(device: &Device, [count, m, n]: [usize; 3]) -> Result<Vec<[Tensor; 3]>> {
    let of = |i: usize| {
        let make = |name: &str, sd: f64| tensor(device, DType::F32, &format!("{name} {i}"), (0.0, sd), &[m, n]);
        Ok([make("w", unit(n))?, make("buf", 0.1)?, make("g", 1.0)?])
    };
    (0..count).map(of).collect()
}

fn muon(device: &Device, of: Muon, sizes: [usize; 3]) -> Result<Work> {
    let mut tensors = matrices(device, sizes)?;
    let (mut spaces, stream) = (MuonSpaces::default(), Stream::default_of(device));
    Ok(Box::new(move || {
        let mut list: Vec<MuonMatrix<'_>> = tensors.iter_mut().map(|[w, buf, g]| MuonMatrix { w, buf, g }).collect();
        of.step(&stream, &mut list, &mut spaces)
    }))
}

fn check_muon(device: &Device, of: Muon, sizes: [usize; 3]) -> Result<Comparison> {
    let [_, m, n] = sizes;
    let mut tensors = matrices(device, sizes)?;
    let stream = Stream::default_of(device);
    let mut wanted = Vec::new();
    for [w, buf, g] in &tensors {
        let (w, buf, g) = (w.to_f64_vec()?, buf.to_f64_vec()?, g.to_f64_vec()?);
        wanted.extend(crate::muon::reference::step(&of, [&w, &buf, &g], [m, n]));
    }
    let mut list: Vec<MuonMatrix<'_>> = tensors.iter_mut().map(|[w, buf, g]| MuonMatrix { w, buf, g }).collect();
    of.step(&stream, &mut list, &mut MuonSpaces::default())?;
    let mut found = Vec::new();
    for [w, buf, _] in &tensors {
        found.extend([w.to_f64_vec()?, buf.to_f64_vec()?]);
    }
    Ok(Comparison::of_all(found.iter().map(Vec::as_slice).zip(wanted.iter().map(Vec::as_slice))))
}

/// One token of each sequence, and the cache that it attends to.
struct Decode {
    device: Device,
    sizes: [usize; 6],
    /// q `[S, J, R, D]`, k and v `[S, W, J, D]`.
    inputs: [Tensor; 3],
    tokens: Tensor,
    o: Tensor,
    lse: Tensor,
    space: Workspace,
}

fn decode(device: &Device, sizes: [usize; 6]) -> Result<Decode> {
    let [s, j, r, d, w, x] = sizes;
    let of = |name: &str, sizes: &[usize]| tensor(device, DType::Bf16, name, (0.0, 1.0), sizes);
    let dims = [("S", s), ("J", j), ("X", x), ("R", r), ("D", d)];
    Ok(Decode {
        device: device.clone(),
        sizes,
        inputs: [of("q", &[s, j, r, d])?, of("k", &[s, w, j, d])?, of("v", &[s, w, j, d])?],
        tokens: device.tensor_from(&vec![w as i32; s], [s])?,
        o: Tensor::zeros(device, DType::Bf16, [s, j, r, d])?,
        lse: Tensor::zeros(device, DType::F32, [s, j, r])?,
        space: ATTENTION_DECODE.workspace(device, &[], &dims)?,
    })
}

impl Decode {
    fn scale(&self) -> f32 {
        std::f32::consts::LOG2_E / (self.sizes[3] as f32).sqrt()
    }

    fn launch(&mut self) -> Result<()> {
        let scale = self.scale();
        let Decode { device, inputs: [q, k, v], tokens, o, lse, space, .. } = self;
        ATTENTION_DECODE.launch(device, args!(q, k, v, tokens, scale, &mut *o, &mut *lse), space)
    }

    fn work(mut self) -> Work {
        Box::new(move || self.launch())
    }

    fn check(mut self) -> Result<Comparison> {
        self.launch()?;
        let [s, j, r, d, w, x] = self.sizes;
        let sizes = attention_decode::Sizes { s, j, r, d, w, x };
        let [q, k, v] = &self.inputs;
        let (q, k, v, tokens) = (q.to_f64_vec()?, k.to_f64_vec()?, v.to_f64_vec()?, vec![w as f64; s]);
        let parts = attention_decode::parts([&q, &k, &v], &tokens, f64::from(self.scale()), sizes);
        let [o, lse] = attention_decode::join(parts.each_ref().map(Vec::as_slice), sizes);
        let found = [self.o.to_f64_vec()?, self.lse.to_f64_vec()?];
        Ok(Comparison::of_all([(&found[0][..], &o[..]), (&found[1][..], &lse[..])]))
    }
}

/// Tokens and what was wanted of them.
struct Losses {
    device: Device,
    sizes: [usize; 4],
    p: Tensor,
    v: Tensor,
    y: Tensor,
    space: Workspace,
}

fn losses(device: &Device, sizes: [usize; 4]) -> Result<Losses> {
    let [b, n, d, _] = sizes;
    let of = |name: &str| tensor(device, DType::Bf16, name, (0.0, 1.0), &[b, n, d]);
    let space = WINDOW_LOSS.workspace(device, &[], &[("B", b), ("N", n)])?;
    let y = Tensor::zeros(device, DType::F32, [b, n])?;
    Ok(Losses { device: device.clone(), sizes, p: of("p")?, v: of("v")?, y, space })
}

impl Losses {
    fn launch(&mut self) -> Result<()> {
        let Losses { device, sizes, p, v, y, space } = self;
        WINDOW_LOSS.launch(device, args!(p, v, 1.0, &mut *y, sizes[3] as i32), space)
    }

    fn work(mut self) -> Work {
        Box::new(move || self.launch())
    }

    fn check(mut self) -> Result<Comparison> {
        self.launch()?;
        let [_, n, d, w] = self.sizes;
        let (p, v) = (self.p.to_f64_vec()?, self.v.to_f64_vec()?);
        let loss = |(p, v): (&[f64], &[f64])| p.iter().zip(v).map(|(p, v)| (p - v) * (p - v)).sum::<f64>();
        let losses: Vec<f64> = p.chunks(d).zip(v.chunks(d)).map(loss).collect();
        let window = |at: usize| losses[at - (at % n).min(w - 1)..=at].iter().sum::<f64>();
        let wanted: Vec<f64> = (0..losses.len()).map(window).collect();
        Ok(Comparison::of_all([(&self.y.to_f64_vec()?[..], &wanted[..])]))
    }
}
