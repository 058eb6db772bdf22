//! Wrong kernels: each mistake is reported at the user's token while Rust compiles.

#[test]
fn mistakes_are_reported_at_the_users_token() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
