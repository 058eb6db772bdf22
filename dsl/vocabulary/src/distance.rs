//! The edit distance of two names, for messages that suggest the nearest.

/// Edit distance, where a swap of two neighbours counts once.
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i.max(j)
            } else {
                let swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let near = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if swap { near.min(rows[i - 2][j - 2] + 1) } else { near }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn what_was_left_out_put_in_changed_or_swapped_counts_once() {
        let apart = ["cosin", "cosinee", "casine", "csoine", "cosine", ""].map(|name| distance(name, "cosine"));
        assert_eq!(apart, [1, 1, 1, 1, 0, 6]);
    }
}
