//! Runs the programs of the instruction forms on a GPU.

use super::gpu;
use super::verdict::Verdict;
use super::{ComparisonRow, Section};
use atlas_runtime::{Device, FormPrograms};
use atlas_sim::forms::Case;
use serde_json::{Value, json};

/// The most disagreements to show for a program.
const EXAMPLES: usize = 3;
/// The initial content of the output. No program writes it to every element.
const UNWRITTEN: u8 = 0xa5;

/// Runs every program.
pub(super) fn run(device: &Device, programs: &FormPrograms) -> Section {
    let mut section = Section::default();
    let mut progress = super::every(100, programs.cases().len());
    for (i, case) in programs.cases().iter().enumerate() {
        progress(&case.name);
        match gpu::outcome(device, programs.run(device, i, UNWRITTEN)) {
            Ok(output) => section.rows.push(compare(case, &output)),
            Err(failure) => {
                let details = json!({ "error": failure.what });
                section.rows.push(ComparisonRow { name: case.name.clone(), verdict: Verdict::Disagrees, details });
                if failure.fatal {
                    section.stopped =
                        Some(format!("`{}` left the GPU's context unusable: {}", case.name, failure.what));
                    break;
                }
            }
        }
    }
    section
}

/// Compares an output with the simulator's arithmetic.
fn compare(case: &Case, output: &[u8]) -> ComparisonRow {
    let name = case.name.clone();
    let bytes = case.result_bytes.max(1) as usize;
    let same = |expected: &u64, found: &[u8]| found == &expected.to_le_bytes()[..found.len().min(8)];
    let equal = case.expected.iter().zip(output.chunks_exact(bytes)).filter(|(e, f)| same(e, f)).count();
    let wrong = case.disagreements(output);
    let verdict = match (wrong.len(), case.count() - equal) {
        (0, 0) => return ComparisonRow { name, verdict: Verdict::Equal, details: Value::Null },
        (0, _) => Verdict::Within,
        _ => Verdict::Disagrees,
    };
    let hex = |value: u64| format!("{value:#x}");
    let example = |&(i, expected, found): &(usize, u64, Option<u64>)| {
        let inputs: Vec<String> = case.inputs.iter().map(|input| hex(input.values[i])).collect();
        json!({ "element": i, "inputs": inputs, "expected": hex(expected), "found": found.map(hex) })
    };
    let other = || {
        (0..case.count()).filter(|&i| !output.chunks_exact(bytes).nth(i).is_some_and(|f| same(&case.expected[i], f)))
    };
    let found = |i: usize| output.chunks_exact(bytes).nth(i).map(value);
    let shown: Vec<Value> = match verdict {
        Verdict::Disagrees => wrong.iter().take(EXAMPLES).map(example).collect(),
        _ => other().take(1).map(|i| example(&(i, case.expected[i], found(i)))).collect(),
    };
    let details = json!({
        "rule": format!("{:?}", case.agreement),
        "elements": case.count(),
        "not_bit_equal": case.count() - equal,
        "wrong": wrong.len(),
        "examples": shown,
    });
    ComparisonRow { name, verdict, details }
}

/// A little-endian number.
fn value(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atlas_sim::forms::programs;

    fn case(name: &str) -> (Case, Vec<u8>) {
        let case = programs().into_iter().find(|c| c.name == name).unwrap();
        let bytes = case.result_bytes as usize;
        let output = case.expected.iter().flat_map(|v| v.to_le_bytes()[..bytes].to_vec()).collect();
        (case, output)
    }

    #[test]
    fn what_is_expected_is_bit_equal() {
        for name in ["add.rn.f32", "setp.lt.f32", "ex2.approx.f32", "mul.wide.u32", "cvt.rn.bf16.f32"] {
            let (case, output) = case(name);
            assert_eq!(compare(&case, &output).verdict, Verdict::Equal, "{name}");
        }
    }

    #[test]
    fn wrong_elements_are_shown_with_their_inputs() {
        let (case, mut output) = case("add.rn.f32");
        for i in [7, 9, 11, 13] {
            output[4 * i] ^= 1;
        }
        let row = compare(&case, &output);
        assert_eq!(row.verdict, Verdict::Disagrees);
        assert_eq!((&row.details["wrong"], &row.details["not_bit_equal"]), (&json!(4), &json!(4)));
        let examples = row.details["examples"].as_array().unwrap();
        assert_eq!(examples.len(), EXAMPLES);
        assert_eq!(examples[0]["element"], 7);
        assert_eq!(examples[0]["inputs"][1], format!("{:#x}", case.inputs[1].values[7]));
        assert_ne!(examples[0]["expected"], examples[0]["found"]);
    }

    #[test]
    fn near_results_of_approximations_are_within_their_bound() {
        let (case, mut output) = case("ex2.approx.f32");
        let i = case.expected.iter().position(|&v| v > 0x3f80_0000 && v < 0x4080_0000).unwrap();
        let near = (case.expected[i] as u32 + 1).to_le_bytes();
        output[4 * i..4 * i + 4].copy_from_slice(&near);
        let row = compare(&case, &output);
        assert_eq!((row.verdict, &row.details["not_bit_equal"]), (Verdict::Within, &json!(1)));
    }

    #[test]
    fn a_short_output_disagrees() {
        let (case, output) = case("add.u32");
        let row = compare(&case, &output[..40]);
        assert_eq!((row.verdict, &row.details["examples"][0]["found"]), (Verdict::Disagrees, &Value::Null));
    }
}
