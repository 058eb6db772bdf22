//! Sample points that represent all programs of a grid and all trips of their loops.
//!
//! Loops may be longer at the end of the grid, or exist only there, and inner loops depend on the outer index. Numbers are
//! evaluated at a few points, whose mean is that of all points. The points are spread evenly along each axis. Their order
//! differs from axis to axis, so that they distinguish numbers that depend on several axes.

/// The number of programs that represent all if some do more than others, and the number of trips if their work depends on the
/// index.
const MANY: u32 = 8;
/// The order of points, by variable. For any two variables, few pairs of near points coincide. The orders were chosen among
/// random ones so that two means match those of all pairs: the mean of the positive part of the difference of two variables,
/// and the mean of the part of their sum above its middle.
const ORDERS: [[u8; MANY as usize]; 6] = [
    [0, 1, 2, 3, 4, 5, 6, 7],
    [5, 2, 6, 1, 3, 4, 0, 7],
    [6, 4, 3, 1, 2, 0, 7, 5],
    [2, 4, 7, 0, 3, 6, 5, 1],
    [1, 3, 7, 6, 2, 0, 4, 5],
    [0, 6, 4, 1, 7, 2, 3, 5],
];

/// The position of a point within its part of a variable. It is not the middle, because a periodic number (`p % size(T)`) would
/// then be equal at all points. The mean of the positions is the middle.
const OFFSETS: [f64; MANY as usize] =
    [0.462_117_1, 0.080_151_1, 0.698_185_1, 0.316_219_1, 0.934_253_1, 0.552_287_1, 0.170_321_1, 0.786_466_3];

/// The number of programs that represent all, and the number of trips of their loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SamplePoints {
    programs: u32,
    trips: u32,
}

/// One program and one trip of its loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SamplePoint {
    of: SamplePoints,
    program: u32,
    trip: u32,
}

impl SamplePoints {
    /// The sample points of formulas that depend on this many axes, and on loop indices at this many depths.
    pub(crate) fn of((axes, depths): (u32, u32)) -> SamplePoints {
        let along = |variables: u32| if variables == 0 { 1 } else { MANY };
        SamplePoints { programs: along(axes), trips: along(depths) }
    }
}

/// The points of each program, one program after the other.
pub(crate) fn programs(of: SamplePoints) -> impl Iterator<Item = impl Iterator<Item = SamplePoint>> {
    (0..of.programs).map(move |program| (0..of.trips).map(move |trip| SamplePoint { of, program, trip }))
}

impl SamplePoint {
    /// The point to use if nothing depends on it.
    #[cfg(test)]
    pub(crate) const FIRST: SamplePoint =
        SamplePoint { of: SamplePoints { programs: 1, trips: 1 }, program: 0, trip: 0 };

    /// The position along a grid axis, from 0 to 1.
    pub(crate) fn along_axis(self, axis: u32) -> f64 {
        position(self.program, self.of.programs, axis)
    }

    /// The position in a loop at a nesting depth, from 0 to 1.
    pub(crate) fn along_loop(self, depth: u32) -> f64 {
        position(self.trip, self.of.trips, depth)
    }
}

/// The position of a number along a variable: in the middle if it is the only one.
fn position(number: u32, of: u32, variable: u32) -> f64 {
    if of == 1 {
        return 0.5;
    }
    let part = ORDERS[variable as usize % ORDERS.len()][number as usize];
    let offset = OFFSETS[(u32::from(part) + 3 * variable) as usize % OFFSETS.len()];
    (f64::from(part) + offset) / f64::from(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each position occurs once along every axis, and no two axes have the same order.
    #[test]
    fn places_are_spread_along_every_axis() {
        for (axes, count) in [(1, 8), (2, 8), (6, 8)] {
            let of: Vec<SamplePoint> = programs(SamplePoints::of((axes, 0))).flatten().collect();
            assert_eq!(of.len(), count);
            let along = |axis: u32| of.iter().map(|p| p.along_axis(axis)).collect::<Vec<_>>();
            for axis in 0..axes {
                let mut sorted = along(axis);
                sorted.sort_by(f64::total_cmp);
                assert!((0..count).all(|i| (sorted[i] * count as f64).floor() == i as f64), "{axis}: {sorted:?}");
                assert!((sorted.iter().sum::<f64>() / count as f64 - 0.5).abs() < 1e-6);
                // Of all pairs of eight places, the difference is 21 / 128 on average, where it is above 0.
                for other in 0..axis {
                    let apart = along(axis).into_iter().zip(along(other)).map(|(a, b)| (a - b).max(0.0));
                    let mean = apart.sum::<f64>() / count as f64;
                    assert!((mean - 21.0 / 128.0).abs() < 0.05, "{axis}, {other}: {mean}");
                }
            }
        }
        assert_eq!(programs(SamplePoints::of((1, 1))).flatten().count(), 64);
        assert_eq!(programs(SamplePoints::of((0, 0))).flatten().count(), 1);
    }
}
