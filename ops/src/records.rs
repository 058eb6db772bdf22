//! Tuning records that ship: which configs were best at the sizes that `atlas bench` measures, of each GPU that was at hand.
//!
//! `ATLAS_RECORD_SIZES=sizes.toml atlas bench && atlas tune --sizes sizes.toml --records ops/records` writes them.

/// Makes the records of a GPU part of the program.
macro_rules! of_gpu {
    ($folder:literal: $($kernel:literal)*) => {
        /// The kernels that have a record.
        #[cfg(test)]
        const KERNELS: &[&str] = &[$($kernel),*];

        $(
            atlas_runtime::records::inventory::submit! {
                atlas_runtime::records::ShippedRecord {
                    origin: concat!("ops/records/", $folder, "/", $kernel, ".toml"),
                    text: include_str!(concat!("../records/", $folder, "/", $kernel, ".toml")),
                }
            }
        )*
    };
}

of_gpu! { "nvidia-h200":
    "attention" "block_attention" "decode_join" "decode_parts" "favor_features" "fourier_features" "fourier_pairs"
    "fused_descent" "fused_forward" "fused_optimization" "group_norm" "inverse" "layer_combine" "layer_gate"
    "layer_norm" "lerp_forward" "lerp_gate" "linear_gelu" "log_sum_exp" "mag_forward" "matmul" "memory_errors"
    "memory_gated_errors" "memory_gated_grads" "memory_input_grad" "memory_read" "memory_read_gated"
    "memory_read_normed" "memory_weight_grads" "monomials2" "monomials3" "muon_apply" "muon_momentum"
    "newton_schulz_small" "ns_apply" "ns_gram" "ns_normalise" "ns_product" "ns_squares" "omega_copy_gates"
    "omega_copy_tokens" "omega_decay_gates" "omega_linear" "omega_mix" "omega_mlp" "omega_muon_tokens"
    "omega_pack_tokens" "omega_token_gates" "omega_unpack_gates" "omega_unpack_tokens" "poly3" "powers2" "powers3"
    "rbf_features" "rms_norm" "rotary" "sigmoid_gate" "silu_gate" "softmax" "swap_axes" "taylor2_features"
    "token_losses" "transpose" "window_sum" "window_sum_eights" "window_totals" "windowed_attention"
}

#[cfg(test)]
mod tests {
    use super::KERNELS;
    use atlas_runtime::records::{Record, Records};

    #[test]
    fn every_file_is_listed_and_a_record() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/records/nvidia-h200");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned()))
            .collect();
        files.sort();
        assert_eq!(files, KERNELS);
        for name in files {
            let text = std::fs::read_to_string(format!("{folder}/{name}.toml")).unwrap();
            let record = Record::parse(&name, &text).unwrap();
            assert_eq!((record.kernel, record.gpu.as_str()), (name, "NVIDIA H200"));
        }
    }

    #[test]
    fn they_are_part_of_the_program() {
        let records = Records::of_gpu("NVIDIA H200");
        assert!(records.problems().is_empty(), "{:?}", records.problems());
        assert!(KERNELS.iter().all(|name| records.of_kernel(name).is_some()));
    }
}
