//! What the machine code of asynchronous products must not have.
//!
//! The tensor cores of Hopper take products of warpgroups (`HGMMA`) one after the other only if nothing between them makes a
//! descriptor in ordinary registers or moves accumulators. ptxas says nothing if it does so, for the code is right.

use crate::command;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Disassembles a cubin and names what stands between its products.
pub(crate) fn faults(nvdisasm: &Path, cubin: &Path) -> Result<Vec<String>> {
    Ok(between_products(&command::output(Command::new(nvdisasm).arg("-c").arg(cubin))?))
}

/// Instructions between the products of one group that copy registers: `R2UR`, and moves of accumulators.
fn between_products(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // What stands behind the last product so far: it counts if another one of the same group follows.
    let mut behind: Option<Vec<(&str, Option<u32>)>> = None;
    for (opcode, register) in text.lines().filter_map(instruction) {
        if opcode.starts_with("HGMMA") {
            let first = register.unwrap_or_default();
            let accumulators = first..first + columns(opcode) / 2;
            let copies = |(opcode, to): &(&str, Option<u32>)| {
                *opcode == "R2UR" || to.is_some_and(|register| accumulators.contains(&register))
            };
            let before = behind.replace(Vec::new()).unwrap_or_default();
            found.extend(before.into_iter().filter(copies).map(|(opcode, _)| opcode.to_owned()));
        } else if opcode.starts_with("WARPGROUP") {
            behind = None;
        } else if let Some(behind) = &mut behind
            && matches!(opcode, "R2UR" | "MOV" | "IMAD.MOV" | "IMAD.MOV.U32")
        {
            behind.push((opcode, register));
        }
    }
    found
}

/// The columns of a product such as `HGMMA.64x256x16.F32.BF16`.
fn columns(opcode: &str) -> u32 {
    opcode.split(['.', 'x']).nth(2).and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// The opcode of a line such as `/*0120*/  @!P0 MOV R5, UR2 ;`, and the number of the register that it writes.
fn instruction(line: &str) -> Option<(&str, Option<u32>)> {
    let (_, instruction) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
    let mut words = instruction.split_whitespace();
    let first = words.next()?;
    let opcode = if first.starts_with('@') { words.next()? } else { first };
    let to = words.next().and_then(|to| to.trim_end_matches(',').strip_prefix('R')?.parse().ok());
    Some((opcode.trim_end_matches(';'), to))
}

#[cfg(test)]
mod tests {
    use super::between_products;

    #[test]
    fn only_what_stands_between_products_counts() {
        let of = |lines: &[&str]| {
            let line = |l: &&str| format!("        /*0120*/                   {l} ;\n                  /* 0x00 */\n");
            between_products(&lines.iter().map(line).collect::<String>())
        };
        let product = "HGMMA.64x256x16.F32.BF16 R24, gdesc[UR20], R24";
        assert_eq!(
            of(&["R2UR UR5, R2", "WARPGROUP.ARRIVE", "MOV R1, R2", product, "UIADD3 UR4, UR5, 0x2", product]),
            [""; 0]
        );
        assert_eq!(of(&[product, "@!P0 R2UR UR5, R2", product, "MOV R1, R2"]), ["R2UR"]);
        assert_eq!(of(&[product, "IMAD.MOV.U32 R24, RZ, RZ, R5", product]), ["IMAD.MOV.U32"]);
        // A register that is no accumulator.
        assert_eq!(of(&[product, "MOV R21, UR7", product]), [""; 0]);
        // Another group.
        assert_eq!(of(&[product, "R2UR UR5, R2", "WARPGROUP.DEPBAR.LE gsb0, 0x0", product]), [""; 0]);
    }
}
