//! Derivatives of f64 matrices in reverse mode, for references: what is written down is the computation alone.
//!
//! A computation adds its results to a [`Tape`] one after the other. [`Tape::gradients`] goes back over them.

use crate::memory::{gelu, gelu_slope};

/// A row-major matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// The elements.
    pub values: Vec<f64>,
}

impl Matrix {
    /// A matrix of these elements. Its rows follow from their number.
    pub fn new(cols: usize, values: Vec<f64>) -> Matrix {
        Matrix { rows: values.len() / cols.max(1), cols, values }
    }

    fn zeros_like(&self) -> Matrix {
        Matrix { values: vec![0.0; self.values.len()], ..*self }
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Matrix {
        Matrix { values: self.values.iter().map(|&x| f(x)).collect(), ..*self }
    }

    /// Element by element. An axis of one element is repeated.
    fn zip(&self, other: &Matrix, f: impl Fn(f64, f64) -> f64) -> Matrix {
        if (self.rows, self.cols) == (other.rows, other.cols) {
            return Matrix { values: self.values.iter().zip(&other.values).map(|(&x, &y)| f(x, y)).collect(), ..*self };
        }
        let (rows, cols) = (self.rows.max(other.rows), self.cols.max(other.cols));
        let at = |m: &Matrix, i: usize, j: usize| m.values[i.min(m.rows - 1) * m.cols + j.min(m.cols - 1)];
        let row = |i: usize| (0..cols).map(move |j| (i, j));
        Matrix {
            rows,
            cols,
            values: (0..rows).flat_map(row).map(|(i, j)| f(at(self, i, j), at(other, i, j))).collect(),
        }
    }

    /// The sums over the axes that were repeated to make this of a matrix like `other`.
    fn summed_like(self, other: &Matrix) -> Matrix {
        if (self.rows, self.cols) == (other.rows, other.cols) {
            return self;
        }
        let mut sums = other.zeros_like();
        for (at, x) in self.values.iter().enumerate() {
            let (i, j) = (at / self.cols, at % self.cols);
            sums.values[i.min(other.rows - 1) * other.cols + j.min(other.cols - 1)] += x;
        }
        sums
    }

    fn turned(&self) -> Matrix {
        let column = |j: usize| self.values.iter().skip(j).step_by(self.cols).copied();
        Matrix { rows: self.cols, cols: self.rows, values: (0..self.cols).flat_map(column).collect() }
    }

    fn times(&self, other: &Matrix) -> Matrix {
        let mut values = vec![0.0; self.rows * other.cols];
        for (row, to) in self.values.chunks(self.cols).zip(values.chunks_mut(other.cols)) {
            for (x, from) in row.iter().zip(other.values.chunks(other.cols)) {
                to.iter_mut().zip(from).for_each(|(to, y)| *to += x * y);
            }
        }
        Matrix { rows: self.rows, cols: other.cols, values }
    }
}

/// A result on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Var(usize);

/// What a result was made by.
enum Recorded {
    Given,
    Add(Var, Var),
    Mul(Var, Var),
    Dot(Var, Var),
    Turn(Var),
    Scale(Var, f64),
    Gelu(Var),
    GeluSlope(Var),
    Power(Var, f64),
    Gather(Var, Vec<Option<usize>>),
}

/// Results in the order in which they were computed.
#[derive(Default)]
pub struct Tape {
    results: Vec<(Matrix, Recorded)>,
}

impl Tape {
    fn push(&mut self, value: Matrix, made: Recorded) -> Var {
        self.results.push((value, made));
        Var(self.results.len() - 1)
    }

    /// A matrix that is not computed.
    pub fn given(&mut self, value: Matrix) -> Var {
        self.push(value, Recorded::Given)
    }

    /// The value of a result.
    pub fn value(&self, x: Var) -> &Matrix {
        &self.results[x.0].0
    }

    /// `x + y`, where an axis of one element is repeated.
    pub fn add(&mut self, x: Var, y: Var) -> Var {
        let value = self.value(x).zip(self.value(y), |x, y| x + y);
        self.push(value, Recorded::Add(x, y))
    }

    /// `x - y`, likewise.
    pub fn sub(&mut self, x: Var, y: Var) -> Var {
        let less = self.scale(y, -1.0);
        self.add(x, less)
    }

    /// `x * y` of each two elements, likewise.
    pub fn mul(&mut self, x: Var, y: Var) -> Var {
        let value = self.value(x).zip(self.value(y), |x, y| x * y);
        self.push(value, Recorded::Mul(x, y))
    }

    /// The product of two matrices.
    pub fn dot(&mut self, x: Var, y: Var) -> Var {
        let value = self.value(x).times(self.value(y));
        self.push(value, Recorded::Dot(x, y))
    }

    /// The transpose.
    pub fn turn(&mut self, x: Var) -> Var {
        let value = self.value(x).turned();
        self.push(value, Recorded::Turn(x))
    }

    /// `x y^T`.
    pub fn dot_turned(&mut self, x: Var, y: Var) -> Var {
        let y = self.turn(y);
        self.dot(x, y)
    }

    /// `x^T y`.
    pub fn turned_dot(&mut self, x: Var, y: Var) -> Var {
        let x = self.turn(x);
        self.dot(x, y)
    }

    /// `factor x`.
    pub fn scale(&mut self, x: Var, factor: f64) -> Var {
        let value = self.value(x).map(|x| factor * x);
        self.push(value, Recorded::Scale(x, factor))
    }

    /// `gelu` of each element.
    pub fn gelu(&mut self, x: Var) -> Var {
        let value = self.value(x).map(gelu);
        self.push(value, Recorded::Gelu(x))
    }

    /// The derivative of `gelu` at each element.
    pub fn gelu_slope(&mut self, x: Var) -> Var {
        let value = self.value(x).map(gelu_slope);
        self.push(value, Recorded::GeluSlope(x))
    }

    /// Each element to this power.
    pub fn power(&mut self, x: Var, power: f64) -> Var {
        let value = self.value(x).map(|x| x.powf(power));
        self.push(value, Recorded::Power(x, power))
    }

    /// The elements with these indices in row-major order, 0 for none, as rows of `cols`.
    pub fn gather(&mut self, x: Var, cols: usize, at: Vec<Option<usize>>) -> Var {
        let values = at.iter().map(|at| at.map_or(0.0, |at| self.value(x).values[at])).collect();
        self.push(Matrix::new(cols, values), Recorded::Gather(x, at))
    }

    /// These rows, zeros for none.
    pub fn rows(&mut self, x: Var, rows: impl IntoIterator<Item = Option<usize>>) -> Var {
        let cols = self.value(x).cols;
        let row = |row: Option<usize>| (0..cols).map(move |j| row.map(|row| row * cols + j));
        let at = rows.into_iter().flat_map(row).collect();
        self.gather(x, cols, at)
    }

    /// The gradients of the sum of all `<result, weights>` by each result on the tape.
    pub fn gradients(&self, of: &[(Var, Matrix)]) -> TapeGradients {
        let mut found: Vec<Option<Matrix>> = vec![None; self.results.len()];
        let add = |found: &mut Vec<Option<Matrix>>, to: Var, by: Matrix| {
            let by = by.summed_like(self.value(to));
            found[to.0] = Some(match found[to.0].take() {
                Some(so_far) => so_far.zip(&by, |x, y| x + y),
                None => by,
            });
        };
        for (result, weights) in of {
            add(&mut found, *result, weights.clone());
        }
        for at in (0..self.results.len()).rev() {
            // What a result is made of comes before it.
            let Some(by) = found[at].take() else { continue };
            match &self.results[at].1 {
                Recorded::Given => {}
                Recorded::Add(x, y) => {
                    add(&mut found, *x, by.clone());
                    add(&mut found, *y, by.clone());
                }
                Recorded::Mul(x, y) => {
                    add(&mut found, *x, by.zip(self.value(*y), |by, y| by * y));
                    add(&mut found, *y, by.zip(self.value(*x), |by, x| by * x));
                }
                Recorded::Dot(x, y) => {
                    add(&mut found, *x, by.times(&self.value(*y).turned()));
                    add(&mut found, *y, self.value(*x).turned().times(&by));
                }
                Recorded::Turn(x) => add(&mut found, *x, by.turned()),
                Recorded::Scale(x, factor) => add(&mut found, *x, by.map(|by| factor * by)),
                Recorded::Gelu(x) => add(&mut found, *x, by.zip(self.value(*x), |by, x| by * gelu_slope(x))),
                Recorded::GeluSlope(x) => add(&mut found, *x, by.zip(self.value(*x), |by, x| by * gelu_bend(x))),
                Recorded::Power(x, power) => {
                    // A root is infinitely steep at 0, and no gradient goes through what nothing depends on.
                    let through = |by: f64, x: f64| if by == 0.0 { 0.0 } else { by * power * x.powf(power - 1.0) };
                    add(&mut found, *x, by.zip(self.value(*x), through));
                }
                Recorded::Gather(x, from) => {
                    let mut to = self.value(*x).zeros_like();
                    from.iter().zip(&by.values).for_each(|(from, by)| from.iter().for_each(|&i| to.values[i] += by));
                    add(&mut found, *x, to);
                }
            }
            found[at] = Some(by);
        }
        TapeGradients(found)
    }
}

/// TapeGradients by the results on a tape.
pub struct TapeGradients(Vec<Option<Matrix>>);

impl TapeGradients {
    /// The gradient by a result, as many zeros if nothing depends on it.
    pub fn by(&self, tape: &Tape, x: Var) -> Vec<f64> {
        self.0[x.0].as_ref().map_or_else(|| tape.value(x).zeros_like().values, |by| by.values.clone())
    }
}

/// The second derivative of gelu: `phi(z) (2 - z^2)`.
fn gelu_bend(z: f64) -> f64 {
    (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt() * (2.0 - z * z)
}

#[cfg(test)]
mod tests {
    use super::{Matrix, Tape, Var};

    fn some(rows: usize, cols: usize, seed: f64) -> Matrix {
        Matrix::new(cols, (0..rows * cols).map(|i| (i as f64 * 1.7 + seed).sin()).collect())
    }

    /// Every operation once.
    fn computed(tape: &mut Tape, inputs: [&Matrix; 3]) -> ([Var; 3], Var) {
        let [x, w, c] = inputs.map(|m| tape.given(m.clone()));
        let z = tape.dot_turned(x, w);
        let (a, slope) = (tape.gelu(z), tape.gelu_slope(z));
        let product = tape.mul(a, slope);
        let weighted = tape.mul(c, product);
        let back = tape.dot(weighted, w);
        let rows = tape.rows(back, [Some(2), None, Some(0), Some(2)]);
        let picked = tape.gather(x, 3, vec![Some(4), None, Some(4)]);
        let both = tape.sub(rows, picked);
        let squares = tape.turned_dot(both, rows);
        let above_one = tape.given(Matrix::new(1, vec![1.5]));
        let above = tape.mul(squares, squares);
        let above = tape.add(above, above_one);
        let roots = tape.power(above, -0.5);
        ([x, w, c], tape.mul(squares, roots))
    }

    /// The length of a vector, over which it is divided with something added, has no derivative at 0. The quotient has one.
    #[test]
    fn a_vector_of_zeros_over_its_length_has_gradients() {
        let quotient = |tape: &mut Tape, x: &Matrix| {
            let x = tape.given(x.clone());
            let squares = tape.dot_turned(x, x);
            let length = tape.power(squares, 0.5);
            let eps = tape.given(Matrix::new(1, vec![0.25]));
            let by = tape.add(length, eps);
            let by = tape.power(by, -1.0);
            (x, tape.mul(x, by))
        };
        let weights = some(1, 3, 0.4);
        let mut tape = Tape::default();
        let (x, y) = quotient(&mut tape, &Matrix::new(3, vec![0.0; 3]));
        let found = tape.gradients(&[(y, weights.clone())]).by(&tape, x);
        let wanted: Vec<f64> = weights.values.iter().map(|w| w / 0.25).collect();
        assert_eq!(found, wanted);
        // Where a root alone is asked for, its slope at 0 shows.
        let mut tape = Tape::default();
        let x = tape.given(Matrix::new(1, vec![0.0]));
        let root = tape.power(x, 0.5);
        assert_eq!(tape.gradients(&[(root, Matrix::new(1, vec![1.0]))]).by(&tape, x), [f64::INFINITY]);
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let inputs = [some(3, 3, 0.1), some(5, 3, 0.2), some(3, 1, 0.3)];
        let weights = some(3, 3, 0.4);
        let value = |inputs: &[Matrix; 3]| -> f64 {
            let mut tape = Tape::default();
            let (_, y) = computed(&mut tape, inputs.each_ref());
            tape.value(y).values.iter().zip(&weights.values).map(|(y, w)| y * w).sum()
        };
        let mut tape = Tape::default();
        let (given, y) = computed(&mut tape, inputs.each_ref());
        let gradients = tape.gradients(&[(y, weights.clone())]);
        for i in 0..3 {
            for (at, found) in gradients.by(&tape, given[i]).into_iter().enumerate() {
                let moved = |by: f64| {
                    let mut inputs = inputs.clone();
                    inputs[i].values[at] += by;
                    value(&inputs)
                };
                let wanted = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!((found - wanted).abs() < 1e-8, "input {i}, element {at}: {found} for {wanted}");
            }
        }
    }
}
