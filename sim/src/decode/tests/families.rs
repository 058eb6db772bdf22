//! Instructions of each family and the operations they become: a table of both.

use super::{op, short};

const TABLE: &str = include_str!("families.txt");

#[test]
fn each_instruction_becomes_its_operation() {
    let mut lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut rows = 0;
    while let Some(instruction) = lines.next() {
        assert_eq!(short(&op(instruction)), lines.next().unwrap().trim_start(), "{instruction}");
        rows += 1;
    }
    assert!(rows > 90, "{rows} rows");
}
