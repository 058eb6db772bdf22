//! What GPUs that are sold do in a second at the most, from their data sheets.
//!
//! A [`Machine`] says what fits on a GPU; two GPUs of one machine may differ in their memory, as an H100 and an H200
//! do. Nothing here decides anything: a card says how near a measured time is to what its hardware allows.
//!
//! Rates are dense ones, of 16-bit operands and sums in single precision, at the highest clock that the data sheet counts with. TF32
//! has half of that on every card. Sources: NVIDIA's data sheets of A100, A30, A10, A40, L4, L40S, H100, H200, HGX B200 and B300,
//! the technical briefs of Jetson AGX Orin, Jetson Thor and DGX Spark, and the whitepapers of the architectures of GeForce RTX 30,
//! 40 and 50. Where these give a rate with sparsity alone, it is halved.

use super::Machine;

/// A GPU by its name, as the driver gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// The driver's name of it.
    pub name: &'static str,
    /// Compute capability times ten.
    pub sm: u32,
    /// Bytes that cross DRAM in a second.
    pub dram_bytes: f64,
    /// Floating-point operations in a second, two for each multiply-add: on tensor cores, of 16-bit operands.
    pub tensor: f64,
    /// On tensor cores, of f64; where these have none, as [`f64`](Card::f64).
    pub tensor_f64: f64,
    /// Of single precision, on no tensor core.
    pub f32: f64,
    /// Of double precision, on no tensor core.
    pub f64: f64,
}

/// Names, then compute capability, GB/s, and TFLOP/s of tensor cores in 16 bits and in f64, of f32 and of f64.
const fn card(name: &'static str, sm: u32, gb: f64, [tensor, tensor_f64, f32, f64]: [f64; 4]) -> Card {
    Card {
        name,
        sm,
        dram_bytes: gb * 1e9,
        tensor: tensor * 1e12,
        tensor_f64: tensor_f64 * 1e12,
        f32: f32 * 1e12,
        f64: f64 * 1e12,
    }
}

/// By compute capability; of each the usual one first.
const CARDS: [Card; 24] = [
    card("NVIDIA A100-SXM4-80GB", 80, 2039.0, [312.0, 19.5, 19.5, 9.7]),
    card("NVIDIA A100 80GB PCIe", 80, 1935.0, [312.0, 19.5, 19.5, 9.7]),
    card("NVIDIA A100-SXM4-40GB", 80, 1555.0, [312.0, 19.5, 19.5, 9.7]),
    card("NVIDIA A100-PCIE-40GB", 80, 1555.0, [312.0, 19.5, 19.5, 9.7]),
    card("NVIDIA A30", 80, 933.0, [165.0, 10.3, 10.3, 5.2]),
    card("NVIDIA A10", 86, 600.0, [125.0, 0.49, 31.2, 0.49]),
    card("NVIDIA A40", 86, 696.0, [149.7, 0.59, 37.4, 0.59]),
    card("NVIDIA RTX A6000", 86, 768.0, [154.8, 0.61, 38.7, 0.61]),
    card("NVIDIA GeForce RTX 3090", 86, 936.0, [71.2, 0.56, 35.6, 0.56]),
    card("Orin", 87, 204.8, [42.5, 0.083, 5.33, 0.083]),
    card("NVIDIA GeForce RTX 4090", 89, 1008.0, [165.2, 1.3, 82.6, 1.3]),
    card("NVIDIA L4", 89, 300.0, [121.0, 0.48, 30.3, 0.48]),
    card("NVIDIA L40S", 89, 864.0, [366.0, 1.44, 91.6, 1.44]),
    card("NVIDIA H100 80GB HBM3", 90, 3350.0, [989.4, 66.9, 66.9, 33.5]),
    card("NVIDIA H100 PCIe", 90, 2039.0, [756.0, 51.2, 51.2, 25.6]),
    card("NVIDIA H100 NVL", 90, 3938.0, [835.5, 60.0, 60.0, 30.0]),
    card("NVIDIA H200", 90, 4800.0, [989.4, 66.9, 66.9, 33.5]),
    card("NVIDIA GH200 480GB", 90, 4000.0, [989.4, 66.9, 66.9, 33.5]),
    card("NVIDIA B200", 100, 8000.0, [2250.0, 40.0, 80.0, 40.0]),
    card("NVIDIA B300 SXM6 AC", 103, 8000.0, [2500.0, 1.3, 80.0, 1.3]),
    card("NVIDIA Thor", 110, 273.0, [259.0, 0.126, 8.06, 0.126]),
    card("NVIDIA GeForce RTX 5090", 120, 1792.0, [209.5, 1.64, 104.8, 1.64]),
    card("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 120, 1792.0, [503.8, 1.97, 126.0, 1.97]),
    card("NVIDIA GB10", 121, 273.0, [125.0, 0.49, 31.0, 0.49]),
];

impl Card {
    /// By the driver's name.
    pub fn named(name: &str) -> Option<&'static Card> {
        CARDS.iter().find(|c| c.name == name)
    }

    /// The usual card of a machine, or of the latest generation before it; none if there is no card of either.
    pub fn usual(machine: &Machine) -> Option<&'static Card> {
        let own = CARDS.iter().find(|c| c.sm == machine.sm);
        own.or_else(|| CARDS.iter().rev().find(|c| c.sm <= machine.sm))
    }

    /// The machine that it is, as the table of machines has it.
    pub fn machine(&self) -> Option<Machine> {
        Machine::all().into_iter().find(|m| m.sm == self.sm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_has_a_card() {
        assert!(CARDS.is_sorted_by_key(|c| c.sm));
        for machine in Machine::all() {
            assert_eq!(Card::usual(&machine).and_then(Card::machine), Some(machine));
        }
        assert!(CARDS.iter().all(|c| Card::named(c.name) == Some(c) && c.machine().is_some()));
    }

    /// One that is written in another unit than the others would stand out.
    #[test]
    fn rates_are_such_as_gpus_have() {
        for c in &CARDS {
            assert!(c.f64 <= c.tensor_f64 && c.tensor_f64 <= c.f32 && c.f32 < c.tensor, "{c:?}");
            assert!((2e11..1e13).contains(&c.dram_bytes) && (4e13..3e15).contains(&c.tensor), "{c:?}");
            // Operations for each byte: few where memory is of the fast kind.
            assert!((70.0..1000.0).contains(&(c.tensor / c.dram_bytes)), "{c:?}");
        }
    }
}
