//! Feature maps: from rows of numbers to rows of their features.

pub use atlas_ops::monomials::{count as monomial_count, monomials2, monomials3, powers2, powers3};
pub use atlas_ops::poly_features::{poly1, poly2, poly3, poly4};
pub use atlas_ops::random_features::{favor_features, fourier_features, fourier_pairs};
pub use atlas_ops::rbf_features::rbf_features;
pub use atlas_ops::taylor_features::taylor2_features;
