//! Kernels that are wrong: each mistake is reported as Rust compiles, at the user's token.

#[test]
fn mistakes_are_reported_at_the_users_token() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
