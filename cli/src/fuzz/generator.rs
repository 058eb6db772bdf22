//! What a random recipe is drawn with: the recipe so far, the random numbers, and what may be named at a place.

use super::recipe::{Ext, Name, Recipe, Rng};
use atlas_dsl::DType;

/// Draws a recipe.
pub(super) struct Generator {
    pub(super) recipe: Recipe,
    pub(super) rng: Rng,
    /// The element type of most tensors.
    pub(super) dtype: DType,
    pub(super) names: Name,
    /// Nodes of expressions that may still be drawn.
    pub(super) budget: usize,
    /// Extents that rows may have, and those of matrix products.
    pub(super) matrices: bool,
    /// Loops carry matrices through products.
    pub(super) states: bool,
    /// What they come to, which is stored.
    pub(super) shown: Option<Name>,
    pub(super) wild: bool,
}

/// A tile type by extents of the recipe.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Type {
    pub(super) dtype: DType,
    pub(super) shape: Vec<Ext>,
}

/// What may be named at a place.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) values: Vec<(Name, Type)>,
    /// Coordinates that count tiles of a dim.
    pub(super) tiles: Vec<(Name, usize)>,
    /// Coordinates that count elements of a dim.
    pub(super) points: Vec<(Name, usize)>,
    /// All coordinates; none is below 0.
    pub(super) counts: Vec<Name>,
}
