//! The command line: its output, and its messages for bad input.

use crate::command::{folder, has, json, prints, prints_with, refuses, says_with, unread, write};
use serde_json::json;
use std::path::Path;

/// The kernels that ship, by name.
const KERNELS: &str = "\
    adamw adamw_rounded attention attention_key_grad attention_prefix_grad attention_query_grad batched_matmul \
    block_attention clip_factor column_sums copy cross_entropy decode_join decode_parts delta_blocks delta_factors \
    delta_outputs delta_rule delta_solve delta_states embedding embedding_grad favor_features fourier_features \
    fourier_pairs fused_descent fused_forward fused_optimization gelu_grad group_norm inverse l2_norm layer_combine \
    layer_combine_grad layer_combine_weight_grad layer_features layer_features_grad layer_gate layer_gate_grad \
    layer_norm layer_norm_grad layer_norm_weight_grad lerp_forward lerp_gate linear_gelu linear_gelu_residual \
    linear_gelu_train linear_relu_residual linear_residual linear_row_scale linear_silu_residual linear_square_sums \
    log_sum_exp mag_forward matmul matmul_add matmul_bf16x3 matmul_tf32 matmul_tf32x3 memory_errors \
    memory_gated_errors memory_gated_grads memory_input_grad memory_read memory_read_gated memory_read_normed \
    memory_recall_gated memory_recall_gated_wide memory_recall_linear memory_recall_linear_wide memory_recall_mlp \
    memory_recall_mlp_wide memory_recall_normed memory_recall_normed_wide memory_weight_grads monomials2 monomials3 \
    muon_apply muon_momentum newton_schulz_small ns_apply ns_gram ns_normalise ns_product ns_squares \
    omega_copy_gates omega_copy_tokens omega_decay_gates omega_gated omega_gated_query_backward \
    omega_gated_read_backward omega_gated_states omega_gated_train_backward omega_gated_wide \
    omega_gated_wide_query_backward omega_gated_wide_read_backward omega_gated_wide_states \
    omega_gated_wide_train_backward omega_key_backward omega_linear omega_linear_read_backward omega_linear_states \
    omega_linear_train_backward omega_linear_wide omega_linear_wide_read_backward omega_linear_wide_states \
    omega_linear_wide_train_backward omega_mix omega_mix_backward omega_mlp omega_mlp_cluster_train omega_mlp_query_backward \
    omega_mlp_read_backward omega_mlp_split_back omega_mlp_split_back_errors omega_mlp_split_back_start \
    omega_mlp_split_ends omega_mlp_split_errors omega_mlp_split_hidden omega_mlp_split_inner omega_mlp_split_keys \
    omega_mlp_split_next_state omega_mlp_split_outer omega_mlp_split_state_errors omega_mlp_split_states \
    omega_mlp_split_train omega_mlp_states omega_mlp_train_backward omega_mlp_wide omega_mlp_wide_query_backward \
    omega_mlp_wide_read_backward omega_mlp_wide_states omega_mlp_wide_train_backward omega_muon omega_muon_gated \
    omega_muon_gated_wide omega_muon_linear omega_muon_linear_wide omega_muon_normed omega_muon_normed_wide \
    omega_muon_tokens omega_muon_tokens_gated omega_muon_tokens_gated_wide omega_muon_tokens_linear \
    omega_muon_tokens_linear_wide omega_muon_tokens_normed omega_muon_tokens_normed_wide omega_muon_tokens_wide \
    omega_muon_wide omega_normed omega_normed_read_backward omega_normed_states omega_normed_train_backward \
    omega_normed_wide omega_normed_wide_read_backward omega_normed_wide_states omega_normed_wide_train_backward \
    omega_pack_tokens omega_split_mixed omega_split_reads omega_step_backward omega_step_gate_backward \
    omega_token_gates omega_unpack_gates omega_unpack_steps omega_unpack_tokens poly1 poly2 poly3 poly4 powers2 \
    powers3 rbf_features rms_norm rms_norm_grad rms_norm_residual_grad rms_norm_weight_grad rotary_halves \
    rotary_interleaved scaled_gate scaled_gate_grad short_conv short_conv_input_grad short_conv_weight_grad \
    sigmoid_gate silu_gate silu_gate_grad silu_grad softmax square_sums swap_axes taylor2_features token_losses \
    transpose ttt_linear ttt_mix window_sum window_sum_eights window_totals windowed_attention";

#[test]
fn list_names_every_kernel() {
    let names: Vec<&str> = KERNELS.split_whitespace().collect();
    has(&prints(&["list"]), &names);
    let list = json(&["list", "--json"]);
    let listed: Vec<&str> = list.as_array().into_iter().flatten().filter_map(|k| k["name"].as_str()).collect();
    assert_eq!(listed, names);
    let memory_read = list.as_array().into_iter().flatten().find(|k| k["name"] == "memory_read");
    assert_eq!(memory_read.map(|k| &k["dims"][2]), Some(&serde_json::json!({ "name": "D", "whole": true })));
}

#[test]
fn list_takes_a_part_of_a_name() {
    let listed = |filter: &str| -> Vec<String> {
        let list = json(&["list", filter, "--json"]);
        list.as_array().into_iter().flatten().filter_map(|k| k["name"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(listed("SoftMax"), ["softmax"]);
    let wide = listed("wide");
    assert!(wide.len() > 3 && wide.iter().all(|name| name.contains("wide")), "{wide:?}");
    assert!(refuses(&["list", "sofmax"]).contains("kernels has `sofmax` in its name"));
}

#[test]
fn compile_prints_tile_ir_that_compiles_again() {
    let args = ["compile", "memory_read", "--emit", "tile", "--dims", "N=2000,D=48,H=192", "--config", "BN=32 BH=96"];
    let text = prints(&args);
    has(&text, &["memory_read", "pipeline", "dot", "store"]);
    assert_eq!(text, prints(&args));
    let dir = folder();
    let file = dir.path().join("memory_read.tile");
    write(&file, &text);
    assert_eq!(prints(&["compile", &file.display().to_string(), "--emit", "tile"]), text);
}

#[test]
fn compile_writes_files_named_by_dtype_config_and_arch() {
    let dir = folder();
    let out = dir.path().display().to_string();
    let said = prints(&[
        "compile",
        "softmax",
        "--emit",
        "tile",
        "--dtype",
        "f32",
        "--config",
        "BN=2 warps=8",
        "--out-dir",
        &out,
    ]);
    has(&said, &["softmax.f32.BN2-stages2-warps8.sm_80.tile"]);
    assert!(Path::new(said.trim()).is_file());
}

#[test]
fn codes_are_explained() {
    let text = prints(&["explain-error", "ATL226"]);
    has(&text, &["ATL226: A loop carries a ragged tile out", "error: ATL226: ", "What to do: Reduce the ragged axis"]);
    assert_eq!(text, prints(&["explain-error", "226"]));
    assert_eq!(prints(&["explain-error", "atl1"]), prints(&["explain-error", "ATL001"]));
    has(&refuses(&["explain-error", "ATL239"]), &["no code ATL239", "similar ones are ATL236 (", "ATL235 ("]);
    has(&refuses(&["explain-error", "E0308"]), &["`E0308` is no code", "as in ATL226"]);
}

#[test]
fn unknown_names_are_answered_with_the_known_ones() {
    let unknown = refuses(&["compile", "gemm", "--emit", "tile"]);
    has(&unknown, &["no kernel `gemm`. The nearest", "`atlas list` lists all", "use my_crate as _;"]);
    // A few names, and not all of them.
    assert!(unknown.len() < 600, "{unknown}");
    has(&refuses(&["compile", "sofmtax", "--emit", "tile"]), &["names here: softmax, "]);
    has(&refuses(&["compile", "layer_no", "--emit", "tile"]), &["names here: layer_norm, "]);
    has(&refuses(&["compile", "softmax", "--arch", "sm_75"]), &["sm_75", "sm_80", "sm_89", "sm_90"]);
    has(&refuses(&["compile", "softmax", "--arch", "hopper"]), &["hopper", "sm_90"]);
    has(&refuses(&["compile", "softmax", "--emit", "sass"]), &["no stage `sass`", "ptx"]);
    has(&refuses(&["compile", "softmax", "--emit", "tile", "--dtype", "f8"]), &["`f8`", "bf16"]);
    has(&refuses(&["compile", "softmax", "--emit", "tile", "--dtype", "i32"]), &["cannot be i32", "bf16"]);
    has(&refuses(&["compile", "softmax", "--config", "num_warps=4"]), &["no knob `num_warps`; did you mean `warps`?"]);
    has(&refuses(&["verify", "--only", "gemm"]), &["no op `gemm`", "rms_norm"]);
    has(&refuses(&["verify", "--only", "sofmax"]), &["no op `sofmax`", "names first: softmax, "]);
    has(&refuses(&["verify", "--device", "tpu:0"]), &["no device `tpu:0`", "cpu"]);
    has(&refuses(&["bench", "--only", "gemm"]), &["no benchmark `gemm`", "poly3"]);
    has(&refuses(&["bench", "--only", "omega_mlp_plan", "--sweep", "T=1..4"]), &["`omega_mlp_plan`", "--sweep"]);
    has(&refuses(&["bench", "--only", "omega_mlp_plan", "--dims", "G=0"]), &["`G` of `omega_mlp_plan` is 0"]);
    has(&refuses(&["bench", "--only", "omega_mlp_plan", "--dims", "Q=1"]), &["`Q`"]);
}

/// What clap suggests of itself would be another mistake: `run` is near to `tune`, and `-- --device` would be a kernel.
#[test]
fn command_lines_of_other_tools_are_told_what_to_write() {
    for (args, tip) in [
        (&["run", "softmax"][..], "tip: `atlas verify --only OP` runs the kernels of an op"),
        (&["profile", "softmax"], "tip: `atlas bench` measures kernels"),
        (&["verify", "softmax"], "tip: one op is selected by its name: `atlas verify --only softmax`"),
        (&["bench", "softmax"], "tip: one op is selected by its name: `atlas bench --only softmax`"),
        (&["explain", "softmax", "--device", "cuda:0"], "`--arch sm_90`"),
        (&["compile", "--kernel", "softmax"], "tip: the kernel's name stands alone: `atlas compile KERNEL`"),
        (&["list", "--filter", "soft"], "tip: the text stands alone: `atlas list TEXT`"),
    ] {
        let said = refuses(args);
        has(&said, &[tip]);
        assert!(!said.contains("'tune'") && !said.contains("as a value"), "{said}");
    }
    // Where nothing is known, nothing is suggested, and a name that is misspelt has its own tip.
    assert!(!refuses(&["doctor", "--verbose"]).contains("tip:"));
    has(&refuses(&["doctr"]), &["tip: a similar subcommand exists: 'doctor'"]);
    has(&refuses(&["verify", "--onyl", "softmax"]), &["'--only'"]);
}

#[test]
fn bad_dims_are_named() {
    let with = |dims: &str| refuses(&["compile", "softmax", "--emit", "tile", "--dims", dims]);
    has(&with("Q=4"), &["`softmax` has no dim `Q`", "N, D"]);
    has(&with("D"), &["`D` is not NAME=SIZE"]);
    has(&with("D=wide"), &["`wide`"]);
    has(&with("D=-3"), &["`-3`"]);
    has(&with("D=0"), &["dim `D`", "cannot be 0"]);
}

/// An option that is given twice is refused: neither value is used silently.
#[test]
fn what_is_given_twice_is_refused() {
    let dir = folder();
    let file = dir.path().join("poly1.tile").display().to_string();
    write(Path::new(&file), &prints(&["compile", "poly1", "--emit", "tile"]));
    let (explain, bundle) = (["explain", "softmax"], ["bundle", "softmax", "--no-evidence"]);
    for (verb, given, said) in [
        (&explain[..], &["--dtype", "T=f32,T=f16"][..], "`T` is given twice in `T=f32,T=f16`"),
        (&explain, &["--dtype", "T=f32 T=f32"], "`T` is given twice"),
        (&explain, &["--dims", "N=4,N=5"], "`N` is given twice"),
        (&explain, &["--config", "BN=2 BN=4"], "`BN` is set twice"),
        (&explain, &["--config", "warps=2,warps=4"], "`warps` is set twice"),
        (&["compile", "softmax"], &["--dtype", "T=f32,T=f16"], "`T` is given twice"),
        (&["compile", "softmax"], &["--emit", "tile,tile"], "--emit names tile twice"),
        (&["compile", &file, "--emit", "tile"], &["--config", "stages=2 stages=3"], "`stages` is set twice"),
        (&["verify", "--device", "sim"], &["--arch", "sm_80,sm_80"], "--arch names sm_80 twice"),
        #[cfg(feature = "llvm")]
        (&["fuzz", "--count", "1"], &["--arch", "sm_80,sm_80"], "--arch names sm_80 twice"),
        (&["bench", "--device", "cpu", "--only", "softmax"], &["--dims", "N=4,N=5"], "`N` is given twice"),
        #[cfg(feature = "llvm")]
        (&["tune", "softmax", "--device", "sim"], &["--dtype", "T=f32,T=f16"], "`T` is given twice"),
        #[cfg(feature = "llvm")]
        (&["tune", "window_sum", "--device", "sim"], &["--set", "window=2,window=3"], "--set: `window` is set twice"),
        #[cfg(feature = "llvm")]
        (&["tune", "window_sum", "--device", "sim"], &["--set", "window=2 window=3"], "--set: `window` is set twice"),
        (&bundle, &["--dtype", "T=f32,T=f16"], "`T` is given twice"),
        (&bundle, &["--arch", "sm_80,sm_80"], "--arch names sm_80 twice"),
    ] {
        let text = refuses(&[verb, given].concat());
        assert!(text.contains(said), "{verb:?} {given:?}: {text}");
    }
}

/// Every verb refuses sizes that no launch accepts, with the same message.
#[test]
fn sizes_are_refused_alike_by_every_verb() {
    let bench: &[&str] = &["bench", "--device", "cpu", "--only", "softmax"];
    let verbs: &[&[&str]] = &[
        &["explain", "softmax"],
        &["compile", "softmax", "--emit", "tile"],
        bench,
        &["bundle", "softmax", "--no-evidence"],
        #[cfg(feature = "llvm")]
        &["tune", "softmax", "--device", "sim"],
    ];
    for verb in verbs {
        for (dims, said) in [
            ("N=4294967296,D=64", "dim `N` of `softmax` is 4294967296: it may be 2147483647 at the most"),
            ("N=2147483648,D=64", "dim `N` of `softmax` is 2147483648: it may be 2147483647 at the most"),
            ("N=2147483647,D=65536", "`x` of `softmax` has more elements at N=2147483647 D=65536 than any GPU holds"),
            ("N=0,D=64", "`softmax` writes nothing at N=0 D=64, and so nothing runs"),
            ("N=64,D=0", "dim `D` of `softmax` is used whole, so it cannot be 0"),
            ("N=-1,D=64", "`-1` in `N=-1` is not a size"),
            ("N=1.5,D=64", "`1.5` in `N=1.5` is not a size"),
        ] {
            let text = refuses(&[verb, &["--dims", dims][..]].concat());
            assert!(text.contains(said), "{verb:?} {dims}: {text}");
        }
    }
    for verb in [&["explain", "softmax"][..], bench] {
        let text = refuses(&[verb, &["--sweep", "N=1..4294967296"]].concat());
        assert!(text.contains("it may be 2147483647 at the most"), "{verb:?}: {text}");
    }
    // Requested values take precedence over defaults.
    has(&refuses(&[bench, &["--dims", "N=7"]].concat()), &["`bench` measures GPUs"]);
    // One launch allows fewer programs than some sizes would need.
    let many = ["explain", "transpose", "--dims", "N=1048576,M=1048576", "--config", "BM=16 BN=16"];
    has(&refuses(&many), &["error[ATL617]", "`transpose` needs 4294967296 programs"]);
}

/// Sizes that a launch would refuse are refused with the same message, and are left out of a sweep.
#[test]
fn sizes_that_a_kernel_does_not_take_are_not_explained() {
    let said = refuses(&["explain", "rotary_halves", "--dims", "P=3"]);
    has(&said, &["error[ATL648]: `rotary_halves` requires P == 2, but P = 3"]);
    let swept = json(&["explain", "rotary_halves", "--sweep", "P=1..4", "--json"]);
    assert_eq!(swept["sweep"].as_array().map(Vec::len), Some(1), "{swept}");
}

#[test]
fn illegal_configs_have_a_reason() {
    let with = |config: &str| refuses(&["compile", "memory_read", "--emit", "tile", "--config", config]);
    has(&with("BK=64"), &["no knob `BK`", "BN, BH, stages, warps"]);
    has(&with("BN"), &["`BN` is not KEY=VALUE"]);
    has(&with("BN=many"), &["`many`"]);
    has(&with("BN=0"), &["BN"]);
}

#[test]
fn a_syntax_error_in_a_tile_file_has_a_line_and_a_caret() {
    let good = prints(&["compile", "poly1", "--emit", "tile"]);
    let dir = folder();
    let file = dir.path().join("broken.tile");
    let broken: Vec<String> =
        good.lines().map(|l| if l.contains("store") { l.replace("store", "stoer") } else { l.to_owned() }).collect();
    let line = 1 + broken.iter().position(|l| l.contains("stoer")).unwrap_or_else(|| panic!("no store in:\n{good}"));
    write(&file, &broken.join("\n"));
    let said = refuses(&["compile", &file.display().to_string(), "--emit", "tile"]);
    has(&said, &["broken.tile", &format!(":{line}:"), "stoer", "^"]);
    has(&refuses(&["compile", "no/such/file.tile", "--emit", "tile"]), &["cannot read no/such/file.tile"]);
    has(&refuses(&["compile", &file.display().to_string(), "--dims", "N=4"]), &["--dims", ".tile"]);
}

#[test]
fn explain_gives_the_config_and_the_grid() {
    let args =
        ["explain", "memory_read", "--arch", "sm_90", "--dims", "G=16,N=2000,D=48,H=192", "--config", "BN=64 BH=64"];
    has(&prints(&args), &["memory_read", "sm_90", "given by --config", "G x tiles(N, 64) = 512 programs"]);
    let explained = json(&["explain", "softmax", "--dims", "N=7,D=40", "--json"]);
    assert_eq!(explained["dims"]["D"], 40);
    assert!(explained["why"].as_str().is_some_and(|w| w.contains("cost model")), "{explained}");
}

#[test]
fn explain_is_a_page_unless_all_configs_are_asked_for() {
    let explain = ["explain", "matmul", "--arch", "sm_86", "--dims", "M=4096,N=4096,K=4096"];
    let page = prints(&explain);
    assert!(page.lines().count() <= 60, "{} lines:\n{page}", page.lines().count());
    has(&page, &["\n 10  ", " slower ones and ", " that are refused: --all lists them"]);
    assert!(!page.contains("refused: error"), "{page}");
    let all = prints(&[&explain[..], &["--all"]].concat());
    has(&all, &["\n 11  ", "refused: error[ATL302]", "a CTA on sm_86 has 101376"]);
    assert!(!all.contains("--all lists"), "{all}");
}

/// The loop of a product: what a unit needs for an iteration, and which one sets the interval.
#[test]
fn explain_tells_how_often_a_loop_begins_an_iteration() {
    let config = ["--config", "BM=128 BN=256 BK=64 stages=4 warps=8"];
    let explain = [&["explain", "matmul", "--arch", "sm_90a", "--dims", "M=4096,N=4096,K=4096"], &config[..]].concat();
    has(&prints(&explain), &["  II ", " cycles by tensor cores (shared memory ", "; 64 iterations"]);
    let loops = json(&[&explain[..], &["--json"]].concat())["loops"].clone();
    assert_eq!(
        (loops[0]["by"].as_str(), loops[0]["iterations"].as_f64()),
        (Some("tensor cores"), Some(64.0)),
        "{loops}"
    );
    assert_eq!(loops[0]["ii_cycles"], loops[0]["cycles"]["tensor cores"], "{loops}");
    // A kernel without a pipelined loop.
    assert_eq!(json(&["explain", "softmax", "--dims", "N=64,D=512", "--json"])["loops"], json!([]));
}

#[test]
fn a_tile_file_is_explained() {
    let file = format!("{}/tests/cases/tile/gemm.tile", crate::ROOT);
    let explain = ["explain", &file, "--arch", "sm_90a"];
    let schedule = ["--config", "stages=4 warps=8"];
    let sized = [&explain[..], &schedule, &["--dims", "M=4096,N=4096,K=4096"]].concat();
    let parts = [
        "kernel   matmul K=4096",
        "tile sizes of the file",
        "= 512 programs",
        "cycles by tensor cores",
        "wgmma",
        "ring",
    ];
    has(&prints(&sized), &parts);
    has(&prints(&[&explain[..], &schedule].concat()), &["tiles(M, 128) x tiles(N, 256) = ? programs", "wgmma"]);
    for (args, why) in [
        (&["--dims", "Q=4"][..], "`matmul` has no dim `Q`; its dims are M, N, K"),
        (&["--dims", "K=12"], "dim `K` is a multiple of 8 in the file, and 12 is none"),
        (&["--dtype", "f16"], "--dtype does not apply to a .tile file"),
        (&["--simulate"], "--simulate does not apply to a .tile file"),
        (&["--config", "BM=64"], "a .tile file has no knob `BM`"),
        // Tiles of 128 by 256 elements need more registers than four warps have.
        (&["--config", "warps=4"], "smaller tiles would help; with warps=8 it fits"),
    ] {
        has(&refuses(&[&explain[..], args].concat()), &[why]);
    }
    has(&refuses(&["explain", "no/such.tile"]), &["cannot read no/such.tile"]);
}

#[test]
fn graphs_are_of_single_kernels_on_gpus() {
    has(&refuses(&["bench", "--graph", "0"]), &["0 is not in 1..=10000"]);
    has(&refuses(&["bench", "--graph", "many"]), &["many"]);
    for device in ["cpu", "sim:sm_90"] {
        let bench = ["bench", "--only", "softmax", "--device", device, "--graph", "--json"];
        has(&refuses(&bench), &["measures GPUs"]);
    }
}

/// Times over sizes as a table, as JSON and as a plot, for an H200 with the shipped records.
#[test]
fn explain_tells_times_bounds_and_who_is_next() {
    let folder = folder();
    let file = folder.path().join("times.svg").display().to_string();
    let gpu = ["--arch", "sm_90", "--gpu", "NVIDIA H200"];
    let sweep = ["--sweep", "N=1024..32768", "--plot", &file];
    let text = prints(&[&["explain", "softmax", "--dims", "N=32768,D=8192"], &gpu[..], &sweep].concat());
    has(&text, &["time ", "bound ", "by DRAM: 1073.7 MB", "next ", "record ", "tuning record", "waves of"]);
    let svg = std::fs::read_to_string(&file).unwrap();
    has(&svg, &["<svg", "recorded", "bound", "microseconds"]);
    let plain = json(&["explain", "softmax", "--dims", "N=64,D=512", "--sweep", "N=1..100", "--json"]);
    assert_eq!(plain["sweep"].as_array().map(Vec::len), Some(8), "{plain}");
    assert!(plain["time"]["bound"]["bytes"].as_f64() == Some(2.0 * 2.0 * 64.0 * 512.0), "{plain}");
    for (args, why) in [
        (&["--sweep", "N=5..4"][..], "sizes rise"),
        (&["--sweep", "Q=1..4"], "has no dim `Q`"),
        (&["--plot", "x.svg"], "--sweep"),
        (&["--sweep", "N=1..4", "--plot", "/nowhere/x.svg"], "cannot write /nowhere/x.svg"),
    ] {
        let text = refuses(&[&["explain", "softmax", "--dims", "N=64,D=512"], args].concat());
        assert!(text.contains(why), "{args:?}: {text}");
    }
}

/// The bound comes from the card's data sheet. Microseconds are printed if records give the time of a model cycle.
#[test]
fn explain_tells_microseconds_of_data_sheets_and_records_alone() {
    let problem = ["explain", "softmax", "--dims", "N=65536,D=1024"];
    let h200 = prints(&[&problem[..], &["--gpu", "NVIDIA H200"]].concat());
    has(&h200, &["on sm_90", "bound    55.92 us by DRAM: 268.4 MB", "of an NVIDIA H200", " us by the model"]);
    let h100 = prints(&[&problem[..], &["--arch", "sm_90"]].concat());
    has(
        &h100,
        &["bound    80.13 us by DRAM", "H100 80GB HBM3", "cycles by the model, which rank configs and are no time"],
    );
    assert!(!h100.contains(" us by the model"), "{h100}");
    let of_json = json(&[&problem[..], &["--arch", "sm_90", "--json"]].concat());
    assert!(of_json["time"]["us"].is_null() && of_json["time"]["bound"]["of_bound"].is_null(), "{of_json}");
    assert_eq!(of_json["time"]["bound"]["gpu"], "NVIDIA H100 80GB HBM3");
    // No measured time is below the bound.
    let recorded = json(&["explain", "softmax", "--dims", "N=32768,D=8192", "--gpu", "NVIDIA H200", "--json"]);
    assert!(recorded["time"]["bound"]["of_bound"].as_f64().is_some_and(|s| s > 0.8 && s < 1.0), "{recorded}");
    has(&prints(&["explain", "softmax", "--dims", "N=64,D=512"]), &["fits the L2 cache"]);
    let open = ["explain", "window_sum", "--dims", "B=8,N=4096,D=1024"];
    has(&prints(&open), &["data, numbers given by value or computed indices decide", "assumes 512 elements"]);
}

/// Records and data sheets belong to one GPU: using those of another machine gives a warning.
#[test]
fn a_gpu_that_is_no_such_arch_is_warned_of() {
    let explain = ["explain", "softmax", "--dims", "N=64,D=512", "--gpu", "NVIDIA H200"];
    let said = |arch: &[&str]| says_with(&[&explain[..], arch].concat(), &[]);
    has(&said(&["--arch", "sm_80"]), &["warning: --gpu: `NVIDIA H200` is sm_90, and what is explained is for sm_80"]);
    for alike in [&[][..], &["--arch", "sm_90"], &["--arch", "sm_90a"]] {
        assert!(!said(alike).contains("warning: --gpu"), "{alike:?}");
    }
}

#[test]
fn an_arch_is_a_gpu_and_its_code_is_for_the_best_target_below() {
    let explain = |arch: &str| prints(&["explain", "memory_read", "--arch", arch, "--dims", "G=16,N=2000,D=64,H=256"]);
    has(&explain("sm_86"), &["on sm_86", "target    sm_80", " of 101376 bytes"]);
    has(&explain("sm_120"), &["on sm_120", "target    sm_90", " of 101376 bytes"]);
    has(&refuses(&["explain", "softmax", "--arch", "sm_75"]), &["--arch: unknown arch `sm_75`", "sm_80, sm_86"]);
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    for args in [&["list"][..], &["list", "--json"], &["explain", "memory_read"], &["doctor"], &["--help"]] {
        assert_eq!(unread(args), "", "{args:?}");
    }
    let verified = unread(&["verify", "--device", "cpu", "--only", "poly1"]);
    assert!(!verified.contains("panicked"), "{verified}");
}

#[test]
fn what_no_gpu_has_room_for_is_refused_and_no_defect() {
    let said = refuses(&["explain", "newton_schulz_small", "--dims", "B=2,M=1024,N=1024"]);
    has(&said, &["no config of `newton_schulz_small` is legal", "bytes of shared memory"]);
    assert!(!said.contains("defect"), "{said}");
}

#[test]
fn verify_on_the_cpu_passes_and_counts() {
    let verified = json(&["verify", "--device", "cpu", "--only", "poly2", "--json"]);
    assert_eq!(verified["failed"], 0, "{verified}");
    assert!(verified["passed"].as_u64().is_some_and(|n| n >= 12), "{verified}");
    has(
        &prints(&["verify", "--device", "cpu", "--only", "softmax"]),
        &["relF", "tolerance", "one column", "problems pass on cpu"],
    );
}

#[test]
fn demo_runs_on_the_cpu() {
    let demo = json(&["demo", "--device", "cpu", "--only", "newton_schulz_small", "--json"]);
    assert_eq!(demo["failed"], 0, "{demo}");
    assert_eq!(demo["results"][0]["shape"], "B32 M48 N192");
}

#[test]
fn bench_refuses_the_cpu_and_a_broken_record() {
    has(&refuses(&["bench", "--device", "cpu"]), &["GPU"]);
    let dir = folder();
    let file = dir.path().join("old.json");
    write(&file, "not json");
    has(&refuses(&["bench", "--device", "cpu", "--against", &file.display().to_string()]), &["--against", "old.json"]);
    for nothing in ["[]", "{\"results\": []}", "{\"sizes\": 3}"] {
        write(&file, nothing);
        let args = ["bench", "--device", "cpu", "--against", &file.display().to_string()];
        has(&refuses(&args), &["old.json", "it has no results"]);
    }
}

#[test]
fn doctor_gives_a_mend_for_what_is_missing() {
    has(&prints(&["doctor"]), &["CPU device", "code generator", "kernel cache", "ATLAS_CACHE_DIR"]);
    for finding in json(&["doctor", "--json"]).as_array().into_iter().flatten() {
        assert!(finding["has"] == true || finding["mend"].as_str().is_some_and(|m| m.len() > 10), "{finding}");
    }
}

#[test]
fn a_missing_gpu_is_told_with_its_mend() {
    let said = refuses(&["verify", "--device", "cuda:97"]);
    has(&said, &["error["]);
}

#[cfg(feature = "llvm")]
#[test]
fn ptx_is_the_same_bytes_each_time() {
    let args = ["compile", "memory_read", "--arch", "sm_80", "--config", "BN=64 BH=64 stages=2 warps=4"];
    let ptx = prints(&args);
    has(&ptx, &[".target sm_80", ".entry memory_read", "mma.sync", "cp.async", "ldmatrix"]);
    assert!(!ptx.contains(".extern .func"));
    assert_eq!(prints(&args), ptx);
}

#[cfg(feature = "llvm")]
#[test]
fn code_is_made_for_one_capability_alone_where_that_is_asked_for() {
    for (arch, version) in [("sm_90a", "8.0"), ("sm_100a", "8.6"), ("sm_120a", "8.7")] {
        let ptx = prints(&["compile", "rms_norm", "--arch", arch]);
        has(&ptx, &[&format!(".target {arch}\n"), &format!(".version {version}\n")]);
    }
}

#[cfg(feature = "llvm")]
#[test]
fn every_stage_prints_and_a_tile_file_gives_the_same_ptx() {
    let args =
        ["compile", "poly3", "--emit", "tile,gpu,llvm,ptx", "--arch", "sm_90", "--config", "BN=16 stages=2 warps=4"];
    has(
        &prints(&args),
        &["// ---- tile", "// ---- gpu", "// ---- llvm", "// ---- ptx", "define ptx_kernel", ".target sm_90"],
    );
    let dir = folder();
    let file = dir.path().join("poly3.tile");
    write(&file, &prints(&["compile", "poly3", "--emit", "tile", "--config", "BN=16"]));
    let file = file.display().to_string();
    let from_file = prints(&["compile", &file, "--arch", "sm_90", "--config", "stages=2 warps=4"]);
    assert_eq!(from_file, prints(&["compile", "poly3", "--arch", "sm_90", "--config", "BN=16 stages=2 warps=4"]));
}

#[cfg(feature = "llvm")]
#[test]
fn a_config_that_does_not_fit_the_target_is_refused_with_the_reason() {
    let said = refuses(&[
        "compile",
        "memory_read",
        "--dtype",
        "f32",
        "--arch",
        "sm_89",
        "--config",
        "BN=64 BH=128 stages=3 warps=8",
    ]);
    has(&said, &["ATL302", "shared memory", "sm_89"]);
}

#[cfg(not(feature = "llvm"))]
#[test]
fn without_the_code_generator_ptx_is_refused_with_the_mend() {
    has(&refuses(&["compile", "softmax", "--emit", "ptx"]), &["code generator", "--features jit"]);
}

/// The record of a kernel that has changed is reported as such, and is not used for times.
#[test]
fn a_stale_record_is_explained_as_such() {
    let folder = folder();
    let text = std::fs::read_to_string("../ops/records/nvidia-h200/softmax.toml").unwrap();
    let text = text.replace("NVIDIA H200", "Old GPU");
    let explained = |text: &str| {
        write(&folder.path().join("softmax.toml"), text);
        let records = [("ATLAS_RECORDS", folder.path().to_str().unwrap())];
        prints_with(&["explain", "softmax", "--gpu", "Old GPU", "--arch", "sm_90"], &records)
    };
    let fresh = explained(&text);
    assert!(
        fresh.contains("record   BN=") && fresh.contains(" us by the model") && !fresh.contains("passed over"),
        "{fresh}"
    );
    // A misspelt GPU gets a list of the known ones; a missing folder is reported.
    let nowhere = [("ATLAS_RECORDS", "/nowhere")];
    let told = says_with(&["explain", "softmax", "--gpu", "NVIDIA H20", "--arch", "sm_90"], &nowhere);
    has(
        &told,
        &[
            "no tuning records of `NVIDIA H20`; there are some of `NVIDIA H100 80GB HBM3`, `NVIDIA H200`",
            "/nowhere",
            "no folder to read",
        ],
    );
    has(&prints_with(&["doctor"], &nowhere), &["tuning records: ", "/nowhere", "no folder to read"]);
    let kernels = text.lines().map(|l| if l.starts_with("ir = ") { "ir = \"0123\"" } else { l });
    let stale = explained(&kernels.collect::<Vec<_>>().join("\n"));
    assert!(stale.contains("record   passed over: the kernel has changed"), "{stale}");
    assert!(!stale.contains(" us by the model") && !stale.contains("of a copy"), "{stale}");
    let other = explained(&text.replace("[\"BN=1 stages=2 warps=4\",", "[\"BN=3 stages=2 warps=4\","));
    assert!(other.contains("record   passed over: the record's config `BN=3 stages=2 warps=4` is none of"), "{other}");
    assert!(!other.contains("the kernel has changed"), "{other}");
}
