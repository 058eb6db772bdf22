//! The state of the random generator: the recipe so far, the random numbers, and the variables in scope.

use super::recipe::{Ext, Name, Recipe, Rng};
use atlas_dsl::DType;

/// Draws a recipe.
pub(super) struct Generator {
    pub(super) recipe: Recipe,
    pub(super) rng: Rng,
    /// Numbers for what is gathered, so that programs in which nothing is stay as they are; `None` while they are in use.
    pub(super) of_places: Option<Rng>,
    /// The element type of most tensors.
    pub(super) dtype: DType,
    pub(super) names: Name,
    /// The number of expression nodes that may still be drawn.
    pub(super) budget: usize,
    /// Whether extents are those of matrix products.
    pub(super) matrices: bool,
    /// Whether loops carry matrices through products.
    pub(super) states: bool,
    /// The result of these loops, which is stored.
    pub(super) shown: Option<Name>,
    /// Sums that several CTAs add up, which the next store adds to its value.
    pub(super) sums: Vec<(Name, Type)>,
    pub(super) wild: bool,
}

/// A tile type, with extents as rows of the recipe's table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Type {
    pub(super) dtype: DType,
    pub(super) shape: Vec<Ext>,
}

/// The variables in scope.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) values: Vec<(Name, Type)>,
    /// Coordinates that count tiles of a dim.
    pub(super) tiles: Vec<(Name, usize)>,
    /// Coordinates that count elements of a dim.
    pub(super) points: Vec<(Name, usize)>,
    /// All coordinates. None is negative.
    pub(super) counts: Vec<Name>,
}
