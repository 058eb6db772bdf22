//! What `monomials` computes, in f64.

/// The features of rows of `d` numbers, of degree `c.len() - 1`, in rows of `e`.
pub fn reference(x: &[f64], d: usize, e: usize, c: &[f64], plain: bool) -> Vec<f64> {
    let of = |row: &[f64]| {
        let mut out = Vec::new();
        for (degree, c) in c.iter().enumerate() {
            // The monomials of a degree by the numbers of their factors, in order.
            let mut all: Vec<Vec<usize>> = vec![vec![]];
            for _ in 0..degree {
                let longer = |m: &Vec<usize>| {
                    let m = m.clone();
                    (m.last().copied().unwrap_or(0)..d).map(move |i| m.iter().copied().chain([i]).collect())
                };
                all = all.iter().flat_map(longer).collect();
            }
            for m in all {
                let factorial = |n: usize| (1..=n).product::<usize>() as f64;
                let repeated: f64 = (0..d).map(|i| factorial(m.iter().filter(|&&f| f == i).count())).product();
                let orders = if plain { 1.0 } else { (factorial(degree) / repeated).sqrt() };
                out.push(c * orders * m.iter().map(|&i| row[i]).product::<f64>());
            }
        }
        out.resize(e, 0.0);
        out
    };
    x.chunks(d.max(1)).flat_map(of).collect()
}

/// The `degree`-fold tensor product of rows of `d` numbers.
pub fn powers(x: &[f64], d: usize, degree: usize) -> Vec<f64> {
    let of = |row: &[f64]| {
        (0..degree).fold(vec![1.0], |all, _| all.iter().flat_map(|a| row.iter().map(move |b| a * b)).collect())
    };
    x.chunks(d.max(1)).flat_map(of).collect()
}
