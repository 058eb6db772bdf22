//! The kernels of each rule that has gradients.

use super::sizes::TrainingSizes;
use super::{
    omega_gated_query_backward, omega_gated_read_backward, omega_gated_states, omega_gated_train_backward,
    omega_gated_wide_query_backward, omega_gated_wide_read_backward, omega_gated_wide_states,
    omega_gated_wide_train_backward, omega_key_backward, omega_linear_read_backward, omega_linear_states,
    omega_linear_train_backward, omega_linear_wide_read_backward, omega_linear_wide_states,
    omega_linear_wide_train_backward, omega_mix_backward, omega_mlp_query_backward, omega_mlp_read_backward,
    omega_mlp_split_back, omega_mlp_split_back_errors, omega_mlp_split_back_start, omega_mlp_split_ends,
    omega_mlp_split_keys, omega_mlp_split_next_state, omega_mlp_split_state_errors, omega_mlp_split_states,
    omega_mlp_states, omega_mlp_train_backward, omega_mlp_wide_query_backward, omega_mlp_wide_read_backward,
    omega_mlp_wide_states, omega_mlp_wide_train_backward, omega_normed_read_backward, omega_normed_states,
    omega_normed_train_backward, omega_normed_wide_read_backward, omega_normed_wide_states,
    omega_normed_wide_train_backward,
};
use crate::omega::room::{chain_on, chain_with, has_config, is_idle, is_worth_launches};
use crate::omega::{Chunking, MemoryForm, OmegaRule, Read, Step, StreamSizes, omega_mix};
use atlas_dsl::def::Declared;
use atlas_runtime::{Chain, Device, LaunchError, Machine, Result};

/// How often kernels are launched for a segment.
#[derive(Clone, Copy)]
pub(super) enum Launches {
    /// This one once.
    Once(&'static dyn Declared),
    /// These in order for each chunk, from the first to the last. Their number `at` is the place of the chunk.
    Forward(&'static [&'static dyn Declared]),
    /// The same from the last chunk to the first.
    Back(&'static [&'static dyn Declared]),
}

impl Launches {
    pub(super) fn kernels(&self) -> &[&'static dyn Declared] {
        match self {
            Launches::Once(kernel) => std::slice::from_ref(kernel),
            Launches::Forward(kernels) | Launches::Back(kernels) => kernels,
        }
    }
}

/// Kernels of which each is one pass over a chunk, by tiles of the memory.
#[derive(Clone, Copy)]
struct SplitKernels {
    /// What makes the states before the chunks of a segment.
    states: &'static [Launches],
    /// What goes back from chunk to chunk.
    train: &'static [Launches],
}

/// The kernels of a memory.
pub(super) struct RuleKernels {
    /// From the gates of a segment to all of its gradients: the first mixes, the second makes states; the last three train, add up
    /// what keys have, and go back to the gates. Each holds whole rows of keys and values, or, the second of a pair, walks over rows
    /// of any width. Both have the same outputs.
    pub(super) backward: &'static [[&'static dyn Declared; 2]],
    /// Other forms of the second of these and the third from the end, if the memory has them.
    split: Option<SplitKernels>,
    /// The tensors of the state, weights first.
    state: &'static [&'static str],
    /// The name that the kernels have for the gradients by what is read.
    dy: &'static str,
    /// Dims that are numbers of parts: of `factors`, `queries` and `mixed`.
    parts: [(&'static str, usize); 3],
}

/// The kernels of a training on a device.
pub(super) struct TrainedRule {
    pub(super) forward: &'static Chain,
    /// One of each pair of [`RuleKernels::backward`], or its split form.
    pub(super) backward: Vec<Launches>,
    pub(super) state: &'static [&'static str],
    pub(super) dy: &'static str,
    parts: [(&'static str, usize); 3],
}

/// Of a hidden row that comes of one product, and of two.
const ONE: [(&str, usize); 3] = [("F", 4), ("V", 2), ("R", 2)];
const TWO: [(&str, usize); 3] = [("F", 7), ("V", 3), ("R", 2)];

const LINEAR: RuleKernels = RuleKernels {
    backward: &[
        [&omega_mix, &omega_mix],
        [&omega_linear_states, &omega_linear_wide_states],
        [&omega_linear_read_backward, &omega_linear_wide_read_backward],
        [&omega_linear_train_backward, &omega_linear_wide_train_backward],
        [&omega_key_backward, &omega_key_backward],
        [&omega_mix_backward, &omega_mix_backward],
    ],
    split: None,
    state: &["w", "s"],
    dy: "dy",
    parts: ONE,
};

const MLP_SPLIT: SplitKernels = SplitKernels {
    states: &[
        Launches::Once(&omega_mlp_split_states),
        Launches::Forward(&[&omega_mlp_split_state_errors, &omega_mlp_split_next_state]),
    ],
    train: &[
        Launches::Once(&omega_mlp_split_back_start),
        Launches::Back(&[&omega_mlp_split_back_errors, &omega_mlp_split_back]),
        Launches::Once(&omega_mlp_split_ends),
        Launches::Once(&omega_mlp_split_keys),
    ],
};

pub(super) const MLP: RuleKernels = RuleKernels {
    backward: &[
        [&omega_mix, &omega_mix],
        [&omega_mlp_states, &omega_mlp_wide_states],
        [&omega_mlp_read_backward, &omega_mlp_wide_read_backward],
        [&omega_mlp_query_backward, &omega_mlp_wide_query_backward],
        [&omega_mlp_train_backward, &omega_mlp_wide_train_backward],
        [&omega_key_backward, &omega_key_backward],
        [&omega_mix_backward, &omega_mix_backward],
    ],
    split: Some(MLP_SPLIT),
    state: &["w1", "w2", "s1", "s2"],
    dy: "dy",
    parts: ONE,
};

const GATED: RuleKernels = RuleKernels {
    backward: &[
        [&omega_mix, &omega_mix],
        [&omega_gated_states, &omega_gated_wide_states],
        [&omega_gated_read_backward, &omega_gated_wide_read_backward],
        [&omega_gated_query_backward, &omega_gated_wide_query_backward],
        [&omega_gated_train_backward, &omega_gated_wide_train_backward],
        [&omega_key_backward, &omega_key_backward],
        [&omega_mix_backward, &omega_mix_backward],
    ],
    split: None,
    state: &["w1", "w2", "w3", "s1", "s2", "s3"],
    dy: "dy",
    parts: TWO,
};

/// Behind its norm a memory is one of two layers.
const NORMED: RuleKernels = RuleKernels {
    backward: &[
        [&omega_mix, &omega_mix],
        [&omega_normed_states, &omega_normed_wide_states],
        [&omega_normed_read_backward, &omega_normed_wide_read_backward],
        [&omega_mlp_read_backward, &omega_mlp_wide_read_backward],
        [&omega_mlp_query_backward, &omega_mlp_wide_query_backward],
        [&omega_normed_train_backward, &omega_normed_wide_train_backward],
        [&omega_key_backward, &omega_key_backward],
        [&omega_mix_backward, &omega_mix_backward],
    ],
    split: None,
    state: &["w1", "w2", "s1", "s2"],
    dy: "dout",
    parts: ONE,
};

impl RuleKernels {
    fn of(memory: MemoryForm) -> RuleKernels {
        match memory {
            MemoryForm::Linear => LINEAR,
            MemoryForm::Mlp => MLP,
            MemoryForm::Gated => GATED,
            MemoryForm::Normed { .. } => NORMED,
        }
    }

    /// Of each pair the kernel that holds whole rows, if a machine has room for them, or else the other one; where it has room for
    /// neither, the name of that.
    fn on(
        &self,
        machine: Option<Machine>,
        rule: &OmegaRule,
        sizes: &TrainingSizes,
    ) -> std::result::Result<Vec<&'static dyn Declared>, &'static str> {
        let fits = |kernel| self.fits(machine, rule, sizes, kernel);
        let one = |pair: &[&'static dyn Declared; 2]| {
            pair.iter().copied().find(|kernel| fits(*kernel)).ok_or(pair[1].declared().name)
        };
        self.backward.iter().map(one).collect()
    }

    /// Whether a machine has room for a kernel.
    fn fits(
        &self,
        machine: Option<Machine>,
        rule: &OmegaRule,
        sizes: &TrainingSizes,
        kernel: &'static dyn Declared,
    ) -> bool {
        let dims = dims(rule, sizes, self.parts, 1);
        // Of tokens, which are not used whole, only a divisor matters.
        let tokens = [("N", 16), ("P", 16)];
        let size = |dim: &str| dims.iter().chain(&tokens).find(|(name, _)| *name == dim).map(|(_, size)| *size);
        machine.is_none_or(|machine| has_config(kernel.declared(), machine, sizes.dtype, size))
    }

    /// The launches of these kernels, with passes over a chunk as launches where that is wanted and a machine has room for them.
    fn launches(
        &self,
        kernels: Vec<&'static dyn Declared>,
        wanted: Passes,
        fits: impl Fn(&'static dyn Declared) -> bool,
    ) -> Vec<Launches> {
        let (states, train) = (1, kernels.len() - 3);
        let all_fit = |launches: &&[Launches]| launches.iter().flat_map(Launches::kernels).copied().all(&fits);
        let split_states = self.split.filter(|_| wanted.states).map(|split| split.states).filter(all_fit);
        let split_train = self.split.filter(|_| wanted.train).map(|split| split.train).filter(all_fit);
        let once = kernels.into_iter().map(Launches::Once).enumerate();
        once.flat_map(|(place, usual)| match (split_states, split_train) {
            (Some(split), _) if place == states => split.to_vec(),
            (_, Some(split)) if place == train => split.to_vec(),
            _ => vec![usual],
        })
        .collect()
    }
}

/// Which passes over a chunk are launches.
#[derive(Clone, Copy)]
struct Passes {
    /// Those that make the states.
    states: bool,
    /// Those that go back.
    train: bool,
}

impl Passes {
    /// What is fastest on a device. Going back over a chunk has so many products that launches over tiles are faster with any number of
    /// programs: 177 us a chunk instead of 247 where 128 programs keep an H200 busy.
    fn on(device: &Device, rule: &OmegaRule, programs: usize) -> Passes {
        Passes { states: is_idle(device, rule, programs), train: is_worth_launches(device, rule) }
    }

    /// All or none.
    fn all(are_split: bool) -> Passes {
        Passes { states: are_split, train: are_split }
    }
}

/// The sizes of all dims of the kernels but those of tokens, by name. A segment has `chunks` chunks.
fn dims(
    rule: &OmegaRule,
    sizes: &TrainingSizes,
    parts: [(&'static str, usize); 3],
    chunks: usize,
) -> Vec<(&'static str, usize)> {
    let own = [
        ("B", sizes.sequences),
        ("H", sizes.heads),
        ("C", chunks),
        ("L", rule.chunking.chunk),
        ("K", rule.chunking.keys()),
        ("W", rule.chunking.window),
        ("D", sizes.key),
        ("E", sizes.value),
        ("M", sizes.hidden),
    ];
    own.into_iter().chain(parts).collect()
}

impl TrainedRule {
    /// The kernels of a rule for a training on a device, split if that is said, or else where that is faster.
    ///
    /// # Errors
    /// [`LaunchError::Choice`] for a rule without gradients, and where the device has no room for the tokens of a chunk and its keys.
    pub(super) fn of(
        device: &Device,
        rule: &OmegaRule,
        sizes: &TrainingSizes,
        is_split: Option<bool>,
    ) -> Result<TrainedRule> {
        let TrainingSizes { sequences, tokens: piece, heads, key, value, hidden, dtype } = *sizes;
        let refused = |found: String, mend| LaunchError::Choice { op: "omega_training", found, mend };
        let by_descent = rule.step == Step::Descent;
        // See `by_chunk`.
        if !by_descent && (rule.step, rule.read) != (Step::MuonByChunk, Read::Before) {
            let mend = "gradients are of rules by descent, and of those with a step for each chunk that read before it";
            return Err(refused(format!("{:?} that reads {:?}", rule.step, rule.read), mend).into());
        }
        let of = StreamSizes { sequences, heads, key, value, piece, dtype };
        let forward = chain_with(chain_on(device, rule, &of)?, device, rule, &of, hidden);
        let kernels = RuleKernels::of(rule.memory);
        let backward = kernels.on(device.chooses_for(), rule, sizes).map_err(|kernel| {
            let Chunking { chunk, window, .. } = rule.chunking;
            let found = format!(
                "chunks of {chunk} tokens with windows of {window} and {dtype}, where {device} has no room for `{kernel}`"
            );
            let mend = match dtype.bytes() {
                2 => "take shorter chunks, a shorter window, or fewer elements of a key",
                _ => "take shorter chunks, a shorter window, or elements of 16 bits",
            };
            refused(found, mend)
        })?;
        let usual = Passes::on(device, rule, sequences.saturating_mul(heads));
        let passes = if by_descent { is_split.map_or(usual, Passes::all) } else { Passes::all(false) };
        let machine = device.chooses_for();
        let backward = kernels.launches(backward, passes, |kernel| kernels.fits(machine, rule, sizes, kernel));
        let RuleKernels { state, dy, parts, .. } = kernels;
        Ok(TrainedRule { forward, backward, state, dy, parts })
    }

    /// See [`dims`].
    pub(super) fn dims(&self, rule: &OmegaRule, sizes: &TrainingSizes, chunks: usize) -> Vec<(&'static str, usize)> {
        dims(rule, sizes, self.parts, chunks)
    }

    /// Whether its memory has a norm inside.
    pub(super) fn is_normed(&self) -> bool {
        self.forward.params().iter().any(|p| p.name() == "norm")
    }
}

/// The name of a gradient.
pub(super) fn gradient(name: &str) -> String {
    format!("d{name}")
}

#[cfg(test)]
mod tests {
    use super::{
        GATED, LINEAR, Launches, MLP, MemoryForm, NORMED, OmegaRule, Passes, Read, RuleKernels, Step, TrainingSizes,
        has_config,
    };
    use crate::omega::Chunking;
    use atlas_dsl::{DType, KernelDef};
    use atlas_runtime::Machine;

    /// Keys, values and hidden elements: of heads as large models have them, of all monomials up to degree 2 of 16, 23 and 64
    /// numbers, and of heads that are wide themselves.
    const SIZES: [[usize; 3]; 6] =
        [[64, 64, 256], [128, 128, 512], [152, 16, 64], [300, 64, 256], [2144, 64, 256], [256, 200, 1024]];

    fn sizes([key, value, hidden]: [usize; 3], dtype: DType) -> TrainingSizes {
        TrainingSizes { sequences: 2, tokens: 128, heads: 4, key, value, hidden, dtype }
    }

    #[test]
    fn gpus_run_the_backward_pass_of_wide_memories() {
        let rule = OmegaRule::omega_net(Chunking::new(64, 16));
        // Of all targets it has the least shared memory.
        let machine: Machine = "sm_89".parse().unwrap();
        let mut whole = 0;
        for kernels in [LINEAR, MLP, GATED, NORMED] {
            let whole_rows: Vec<_> = kernels.backward.iter().map(|pair| pair[0].declared().name).collect();
            let names = |machine, of: [usize; 3], dtype| {
                let found = kernels.on(machine, &rule, &sizes(of, dtype));
                let found = found.unwrap_or_else(|none| panic!("{none} {of:?} {dtype}"));
                found.iter().map(|k| k.declared().name).collect::<Vec<_>>()
            };
            for (of, dtype) in SIZES.into_iter().flat_map(|of| [DType::F32, DType::Bf16].map(|dtype| (of, dtype))) {
                let found = names(Some(machine), of, dtype);
                whole += usize::from(found == whole_rows);
                if of[0] > 2000 {
                    assert_ne!(found, whole_rows, "{of:?}");
                }
            }
            assert_eq!(names(None, SIZES[5], DType::F32), whole_rows);
        }
        assert!(whole > 0);
    }

    /// Each kernel is chosen by itself, and what no GPU has room for is refused before anything runs.
    #[test]
    fn long_chunks_take_the_kernels_that_have_room() {
        let machine: Machine = "sm_89".parse().unwrap();
        let of = |kernels: &RuleKernels, chunk, dtype| {
            let rule = OmegaRule::omega_net(Chunking::new(chunk, 16));
            let found = kernels.on(Some(machine), &rule, &sizes([64, 64, 256], dtype));
            found.map(|kernels| kernels.iter().map(|k| k.declared().name).collect::<Vec<_>>())
        };
        let is_wide = |names: &[&str]| names.iter().map(|n| n.contains("_wide_")).collect::<Vec<_>>();
        let mixed = of(&MLP, 48, DType::F32).unwrap();
        assert!(is_wide(&mixed).contains(&true) && is_wide(&mixed[1..4]).contains(&false), "{mixed:?}");
        assert!(of(&GATED, 512, DType::F32).is_err());
    }

    /// No GPU holds the matrices of Muon for these.
    #[test]
    fn gpus_run_the_forward_pass_of_wide_memories() {
        let rule =
            OmegaRule { read: Read::Before, step: Step::MuonByChunk, ..OmegaRule::omega_net(Chunking::new(64, 16)) };
        for memory in [MemoryForm::Linear, MemoryForm::Mlp, MemoryForm::Gated, MemoryForm::Normed { eps: 0.01 }] {
            let rule = OmegaRule { memory, ..rule };
            for [key, value, width] in SIZES.into_iter().take(3) {
                let hidden = if memory == MemoryForm::Linear { 0 } else { width };
                let size = |name: &str| match name {
                    "B" | "C" => Some(2),
                    "H" => Some(4),
                    "N" | "P" => Some(128),
                    "L" => Some(64),
                    "K" => Some(80),
                    "W" => Some(16),
                    "D" => Some(key),
                    "E" => Some(value),
                    "M" => Some(hidden),
                    _ => None,
                };
                let machine: Machine = "sm_89".parse().unwrap();
                let is_legal = |kernel: &'static KernelDef| has_config(kernel, machine, DType::Bf16, size);
                let of = [key, value, hidden];
                let forward = rule.chain_for_hidden(key, value, hidden, DType::Bf16);
                let kernel = forward.kernels[1].declared();
                assert!(is_legal(kernel), "{} {of:?}", kernel.name);
                if key > 96 {
                    assert!(!is_legal(rule.chain().kernels[1].declared()) || memory == MemoryForm::Linear, "{of:?}");
                }
            }
        }
    }

    /// Passes over a chunk are launches where they are wanted and have room; the other kernels stay.
    #[test]
    fn passes_over_a_chunk_are_launches_where_they_are_wanted() {
        let machine: Machine = "sm_90a".parse().unwrap();
        let rule = OmegaRule::omega_net(Chunking::new(64, 16));
        let of = |kernels: RuleKernels, passes, fits: fn(&str) -> bool| {
            let usual = kernels.on(Some(machine), &rule, &sizes(SIZES[0], DType::Bf16)).unwrap();
            let launches = kernels.launches(usual, passes, |kernel| fits(kernel.declared().name));
            launches.iter().flat_map(Launches::kernels).map(|k| k.declared().name).collect::<Vec<_>>()
        };
        let split = |names: &[&str]| names.iter().filter(|name| name.contains("_split_")).count();
        let usual = of(MLP, Passes::all(false), |_| true);
        assert_eq!([split(&usual), usual.len()], [0, 7]);
        let all = of(MLP, Passes::all(true), |_| true);
        assert_eq!([split(&all), all.len()], [8, 13]);
        let train = of(MLP, Passes { states: false, train: true }, |_| true);
        assert_eq!([split(&train), train.len()], [5, 11]);
        assert!(train.contains(&"omega_mlp_states") && !train.contains(&"omega_mlp_train_backward"), "{train:?}");
        let cramped = of(MLP, Passes::all(true), |name| name != "omega_mlp_split_keys");
        assert_eq!(split(&cramped), 3, "{cramped:?}");
        assert_eq!(split(&of(GATED, Passes::all(true), |_| true)), 0);
    }
}
