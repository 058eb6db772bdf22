//! What `atlas explain` tells of kernels whose programs several CTAs share.

use crate::command::{has, json, prints, refuses};

/// Several CTAs share each program: how many, and the memory in which they leave their partial tiles.
#[test]
fn explain_tells_the_ctas_of_programs_and_their_scratch_memory() {
    let given = ["--arch", "sm_90a", "--dims", "M=16,N=4096,K=4096", "--config"];
    let explain = |config| [&["explain", "matmul"], &given[..], &[config]].concat();
    let split = explain("BM=16 BN=64 BK=128 stages=3 warps=4 split_k=8");
    let parts = [
        "= 64 programs of 8 CTAs, 512 CTAs of 128 threads\n",
        "scratch  256 bytes for arrivals and 2097152 for partial tiles, in global memory\n",
    ];
    has(&prints(&split), &parts);
    let data = json(&[&split[..], &["--json"]].concat());
    let numbers = [&data["programs"], &data["ctas_per_program"], &data["scratch"]["partials"]].map(|n| n.as_u64());
    assert_eq!(numbers, [Some(64), Some(8), Some(2_097_152)], "{data}");
    let whole = prints(&explain("BM=16 BN=64 BK=128 stages=3 warps=4"));
    has(&whole, &["= 64 programs of 128 threads\n"]);
    assert!(!whole.contains("\nscratch  "), "{whole}");
    // The model chooses to split this product, and not the next one.
    let ranked = prints(&["explain", "matmul", "--arch", "sm_90a", "--dims", "M=16,N=4096,K=4096", "--all"]);
    has(&ranked, &[" CTAs per SM, ", " cycles, 64 programs of 8 CTAs, 512 CTAs in ", " cycles, 64 programs in "]);
    let large = prints(&["explain", "matmul", "--arch", "sm_90a", "--dims", "M=4096,N=4096,K=4096"]);
    has(&large, &[" programs per SM, ", " cycles, 512 programs in "]);
    let file = format!("{}/tests/cases/tile/gemm.tile", crate::ROOT);
    let of_file = prints(&["explain", &file, "--config", "warps=8 split_k=2"]);
    has(
        &of_file,
        &["= ? programs of 2 CTAs, ? CTAs of 256 threads", "scratch  4 bytes", " of each program, in global"],
    );
    let shared = ["--dims", "M=1048576,N=1048576,K=64", "--config", "BM=64 BN=64 split_k=8"];
    let said = refuses(&[&["explain", "matmul"], &shared[..]].concat());
    has(&said, &["error[ATL617]", "`matmul` needs 2147483648 CTAs", "8 for each of 268435456 programs"]);
}
